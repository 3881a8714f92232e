"""Probabilities of pairs of sampled objects by numbers of half the width, exact all the same.

Single precision compares twice as many samples at once. What its rounding may have turned is known: a band around the
limit. Where no distance lies in it, counts are those of doubles; where one does, `close_count` compares the samples
again. Bounds of single samples are widened by as much.

Coordinates are taken from the mean of the left object, in limits. Half a squared distance is |a|^2 / 2 + |b|^2 / 2 -
a.b; samples that are close lie within 1 + r of that mean, r the left object's radius, and such a number has lost at
most 14 (1 + r)^2 roundings of 2^-24. The band has room for 32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.arrays import SampleRun
from appulse.kernels.bounds import fetch_place, fetch_spread
from appulse.kernels.jit import fused_kernel, kernel
from appulse.kernels.simd import LANES, close_to_four, halve, prefetch
from appulse.kernels.within_epsilon import Open, close_count

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Floats32, Ints, RowPairs, Sampled

_AHEAD = 8  # pairs that are prepared before their turn
_BAND = 2.0**-19  # 32 roundings
_SLACK = 2.0**-18  # of what bounds go by, in squared distances
_FARTHEST = 64.0  # in limits: beyond, most pairs have a distance in the band
_NOWHERE = np.float32(-1e30)
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_LEFT, _RIGHT, _SHARE, _ROWS = 0, 4, 8, 9  # where the rows of each begin in the room: three axes, and norms


class Goal(NamedTuple):
    """When a pair is an answer, and which pairs are taken."""

    limit: float
    threshold: float
    fewest: int  # samples of an object, which are at least 16


class _Other(NamedTuple):
    """What bounds go by, of the object that samples of another are judged against."""

    x: np.float32  # its mean
    y: np.float32
    z: np.float32
    xx: np.float32  # its covariance, four times
    xy: np.float32
    xz: np.float32
    yy: np.float32
    yz: np.float32
    zz: np.float32
    u: np.float32  # its skew, four times
    v: np.float32
    w: np.float32
    least: np.float32  # the trace of its covariance, less the squared limit
    spread: np.float32
    inside: np.float32  # squared distances up to which all of it is close, and from which on none is
    outside: np.float32


@fused_kernel
def _placed(
    room: Floats32, first: int, values: Floats, at: int, n: int, centre: Floats, row: int, scale: float
) -> None:
    """The samples of an object, and half their squared norms, negated; the room's last ones are near nothing."""
    width, blocks = room.shape[1], (n + LANES - 1) // LANES
    for k in range(centre.shape[1]):
        begin, to = at + k * n, (first + k) * width
        for s in range(0, n - LANES + 1, LANES):
            halve(values, begin + s, centre[row, k], scale, room, to + s)
        halve(values, begin + n - LANES, centre[row, k], scale, room, to + n - LANES)
    for s in range(blocks * LANES):
        x, y, z = room[first, s], room[first + 1, s], room[first + 2, s]
        room[first + 3, s] = -_HALF * (x * x + y * y + z * z)
    for s in range(n, blocks * LANES):
        room[first + 3, s] = _NOWHERE


class _Place(NamedTuple):
    """Where an object is and how large, in limits: its mean, and how far its samples are from that."""

    x: float
    y: float
    z: float
    radius: float
    far: float  # how far samples of both objects are from each other, at most
    blur: float  # how wrong means may be


@fused_kernel
def _other_of(at: _Place, covariance: Floats, shape: Floats, row: int, d: int, scale: float) -> _Other:
    """As `sample_bounds` begins, with more room for rounding."""
    f, far, square = np.float32, at.far, scale * scale
    slack = _SLACK * (1.0 + far * far) + 4.0 * far * at.blur
    blunt = 4.0 * far * far * slack + 40.0 * far * far * far * at.blur
    inside = 1.0 - at.radius - at.blur
    inside = inside * inside - slack if inside > 0.0 else -1.0
    outside = (1.0 + at.radius + at.blur) ** 2 + slack
    xx, xy = covariance[row, 0], covariance[row, 1]
    if d == 2:
        yy = covariance[row, 2]
        xz = yz = zz = w = 0.0
    else:
        xz, yy, yz, zz = covariance[row, 2], covariance[row, 3], covariance[row, 4], covariance[row, 5]
        w = shape[row, 2]
    least = square * (xx + yy + zz) - 1.0 - slack
    spread = shape[row, d] * square * square + blunt
    c, t = 4.0 * square, 4.0 * square * scale
    spreads = f(c * xx), f(2.0 * c * xy), f(2.0 * c * xz), f(c * yy), f(2.0 * c * yz), f(c * zz)
    skew = f(t * shape[row, 0]), f(t * shape[row, 1]), f(t * w)
    return _Other(f(at.x), f(at.y), f(at.z), *spreads, *skew, f(least), f(spread), f(inside), f(outside))


@fused_kernel
def _shares(room: Floats32, first: int, n: int, other: _Other) -> tuple[float, float]:
    """How many samples all of another object is close to, and what share of it is close to all the rest, at most.

    The share of each is kept in the room, as `sample_bounds` has it; 0 where all of the other is close, or none.
    """
    blocks = (n + LANES - 1) // LANES
    found = rest = _ZERO
    for s in range(blocks * LANES):
        a, b, c = other.x - room[first, s], other.y - room[first + 1, s], other.z - room[first + 2, s]
        apart = a * a + b * b + c * c
        tilt = a * (other.u + other.xx * a + other.xy * b + other.xz * c)
        tilt += b * (other.v + other.yy * b + other.yz * c) + c * (other.w + other.zz * c)
        above = apart + other.least
        variance = max(_ZERO, tilt) + other.spread
        share = variance / (variance + above * above) if above > _ZERO else _ONE
        nowhere = room[first + 3, s] == _NOWHERE
        whole = (apart <= other.inside) & (not nowhere)
        share = _ZERO if whole or nowhere or apart > other.outside else share
        found += _ONE if whole else _ZERO
        rest += share
        room[_SHARE, s] = share
    return np.float64(found), np.float64(rest) * (1.0 + blocks * _SLACK)


@kernel
def _by_doubles(one: SampleRun, other: SampleRun, d: int, limit: float, which: Ints) -> float:
    """How many of the other's samples are close to each of these samples, in all."""
    most, scratch = np.zeros(one.n), np.empty(other.n)
    known = Open(which, len(which), most, 0.0, 0.0, 0.0, np.inf)
    return close_count(one, other, d, limit * limit, known, scratch)[0]


@kernel
def refine_narrow(
    pairs: RowPairs,
    goal: Goal,
    one: Sampled,
    other: Sampled,
    probability: Floats,
    at_most: Floats,  # as `refine` has them
    done: Flags,  # pairs that were taken
) -> int:
    """As `refine`, for objects of two and three dimensions whose samples all weigh the same."""
    left, right = pairs
    limit, threshold, fewest = goal
    left_values, left_begin, left_length, left_base = one.samples[1:5]
    right_values, right_begin, right_length, right_base = other.samples[1:5]
    left_mass, left_centre, left_radius, left_covariance, left_shape = one.moments
    right_mass, right_centre, right_radius, right_covariance, right_shape = other.moments
    d, scale, early = left_centre.shape[1], 1.0 / limit, at_most.shape[0] > 0
    longest = 0
    for i in range(left.shape[0]):
        longest = max(longest, left_length[left[i]] // d, right_length[right[i]] // d)
    width = (longest // LANES + 2) * LANES
    room, order = np.zeros((_ROWS, width), np.float32), np.empty(width + 4, np.int64)
    room[_LEFT + 3, width - 1] = room[_RIGHT + 3, width - 1] = _NOWHERE
    here = -1  # whose samples are in the room
    pruned = 0
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        n, m = left_length[a] // d, right_length[b] // d
        if i + 1 < left.shape[0]:
            # Partners lie anywhere in the window: have the next one's samples on their way.
            c = right[i + 1]
            for t in range(0, right_length[c], 8):
                prefetch(right_values, right_begin[c] - right_base + t)
        if i + _AHEAD < left.shape[0]:
            c = right[i + _AHEAD]
            prefetch(right_begin, c)
            prefetch(right_length, c)
            fetch_place(right_mass, right_radius, right_centre, c)
            fetch_spread(right_covariance, right_shape, c)
        gap_x, gap_y = left_centre[a, 0] - right_centre[b, 0], left_centre[a, 1] - right_centre[b, 1]
        gap_z = left_centre[a, 2] - right_centre[b, 2] if d == 3 else 0.0
        apart = np.sqrt(gap_x * gap_x + gap_y * gap_y + gap_z * gap_z)
        magnitude = 0.0
        for k in range(d):
            magnitude += abs(left_centre[a, k]) + abs(right_centre[b, k])
        gap_x, gap_y, gap_z, magnitude = gap_x * scale, gap_y * scale, gap_z * scale, magnitude * scale
        far = (apart + left_radius[a] + right_radius[b]) * scale
        blur = 4e-16 * (magnitude + far)
        far += blur
        done[i] = min(n, m) >= fewest and far <= _FARTHEST
        if not done[i]:
            continue
        x_at, y_at = left_begin[a] - left_base, right_begin[b] - right_base
        if a != here:
            _placed(room, _LEFT, left_values, x_at, n, left_centre, a, scale)
            here = a
        # The samples of the wider object are judged.
        flipped = left_radius[a] < right_radius[b]
        if flipped:
            _placed(room, _RIGHT, right_values, y_at, m, left_centre, a, scale)
            judged, others, many, partners = _RIGHT, _LEFT, m, n
            at = _Place(0.0, 0.0, 0.0, left_radius[a] * scale, far, blur)
            about = _other_of(at, left_covariance, left_shape, a, d, scale)
        else:
            judged, others, many, partners = _LEFT, _RIGHT, n, m
            at = _Place(-gap_x, -gap_y, -gap_z, right_radius[b] * scale, far, blur)
            about = _other_of(at, right_covariance, right_shape, b, d, scale)
        inner, rest = _shares(room, judged, many, about)
        weight = left_mass[a] * right_mass[b]
        needed = (threshold - 1e-12) * (n * m / weight)
        enough = (threshold + 1e-12) * (n * m / weight) if early else np.inf
        found, rest = inner * partners, rest * partners
        if found + rest < needed:
            pruned += 1
            probability[i] = np.nan
            continue
        if found < enough:
            if not flipped:
                _placed(room, _RIGHT, right_values, y_at, m, left_centre, a, scale)
            size = 0
            for s in range(many):
                order[size] = s
                size += room[_SHARE, s] > _ZERO
            order[size] = order[size + 1] = order[size + 2] = width - 1
            band = np.float32(_BAND * (1.0 + left_radius[a] * scale + blur) ** 2)
            blocks = (partners + LANES - 1) // LANES
            for t in range(0, size, 4):
                four = order[t], order[t + 1], order[t + 2], order[t + 3]
                begin = judged * width
                places = begin + four[0], begin + four[1], begin + four[2], begin + four[3]
                close = close_to_four(room, width, places, others * width, blocks, band)
                if close < 0:
                    which = order[t : min(t + 4, size)]
                    x, y = SampleRun(left_values, x_at, left_mass, 0, n), SampleRun(right_values, y_at, left_mass, 0, m)
                    found += _by_doubles(y, x, d, limit, which) if flipped else _by_doubles(x, y, d, limit, which)
                else:
                    found += close
                shares = room[_SHARE, four[0]] + room[_SHARE, four[1]] + room[_SHARE, four[2]] + room[_SHARE, four[3]]
                rest -= np.float64(shares) * partners
                if t + 4 >= size:
                    rest = 0.0
                if found + rest < needed or found >= enough:
                    break
        if found + rest < needed:
            probability[i] = np.nan
            continue
        probability[i] = (found / (n * m)) * weight
        if early:
            at_most[i] = probability[i] if rest == 0.0 else min(weight, (found + rest) / (n * m) * weight)
    return pruned
