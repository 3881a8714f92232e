"""Which samples of two objects are close: the innermost loops of every join of sampled objects.

Samples of an object are stored dimension by dimension (all first coordinates, then all second ones), so that these
loops run over contiguous memory. One call for each pair of objects: a call costs as much as a hundred comparisons.

``open_.order`` lists samples of the one object that are to be looked at, ``upper`` how much of the other is close to
each at most. ``found`` is what is close already, ``rest`` what those in order may add. A call ends with -1 as soon as
both together cannot reach what is ``needed``, and early with what it has once that is ``enough``. It returns what it
found and what it left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel
from appulse.kernels.metrics import Within, limits_of
from appulse.kernels.simd import LANES, close_2, close_3, close_4, close_5

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints, RowPairs, SampleRun, Samples

_ALL = (1 << LANES) - 1


class Open(NamedTuple):
    """What is known of a pair of objects before samples are compared, and what would settle it."""

    order: Ints  # the first ``many`` of them
    many: int
    upper: Floats
    found: float
    rest: float
    needed: float
    enough: float


class SamplePairs(NamedTuple):
    """Samples within the limit of each other, and their weights."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    weight: Floats


@kernel
def close_count(
    one: SampleRun, other: SampleRun, d: int, limit2: float, open_: Open, scratch: NDArray[np.float64]
) -> tuple[float, float]:
    """How many pairs of samples are close, of those in order against all of the other's."""
    own, own_at, n = one.values, one.at, one.n
    others, at, m = other.values, other.at, other.n
    order, upper, found, rest = open_.order, open_.upper, open_.found, open_.rest
    needed, enough = open_.needed, open_.enough
    # The last 16 overlap those before; of them only bits not counted yet are kept.
    last = m - LANES
    whole = last + 1 if m >= LANES and 1 < d <= 5 else 0
    kept = _ALL & ~((1 << (-m % LANES)) - 1) if m % LANES else 0
    for t in range(open_.many):
        s = order[t]
        near = 0
        if whole == 0:
            scratch[:m] = 0.0
            for i in range(d):
                for k in range(m):
                    a = own[own_at + i * n + s] - others[at + i * m + k]
                    scratch[k] += a * a
            for k in range(m):
                near += scratch[k] <= limit2
        elif d == 2:
            for k in range(0, whole, LANES):
                near += close_2(own, own_at + s, n, others, at + k, m, limit2, _ALL)
            if kept:
                near += close_2(own, own_at + s, n, others, at + last, m, limit2, kept)
        elif d == 3:
            for k in range(0, whole, LANES):
                near += close_3(own, own_at + s, n, others, at + k, m, limit2, _ALL)
            if kept:
                near += close_3(own, own_at + s, n, others, at + last, m, limit2, kept)
        elif d == 4:
            for k in range(0, whole, LANES):
                near += close_4(own, own_at + s, n, others, at + k, m, limit2, _ALL)
            if kept:
                near += close_4(own, own_at + s, n, others, at + last, m, limit2, kept)
        else:
            for k in range(0, whole, LANES):
                near += close_5(own, own_at + s, n, others, at + k, m, limit2, _ALL)
            if kept:
                near += close_5(own, own_at + s, n, others, at + last, m, limit2, kept)
        found += near
        rest -= upper[s]
        if found + rest < needed:
            return -1.0, 0.0
        if found >= enough:
            break
    return found, rest


@kernel
def close_mass(
    one: SampleRun, other: SampleRun, d: int, limit2: float, open_: Open, scratch: NDArray[np.float64]
) -> tuple[float, float]:
    """The weight of the pairs of samples that are close."""
    own, own_at, own_weights, own_weights_at, n = one.values, one.at, one.weights, one.weights_at, one.n
    others, at, weights, weights_at, m = other.values, other.at, other.weights, other.weights_at, other.n
    order, upper, found, rest = open_.order, open_.upper, open_.found, open_.rest
    needed, enough = open_.needed, open_.enough
    for t in range(open_.many):
        s = order[t]
        near = 0.0
        if d == 2:
            for k in range(m):
                a = own[own_at + s] - others[at + k]
                b = own[own_at + n + s] - others[at + m + k]
                near += weights[weights_at + k] if a * a + b * b <= limit2 else 0.0
        elif d == 3:
            for k in range(m):
                a = own[own_at + s] - others[at + k]
                b = own[own_at + n + s] - others[at + m + k]
                c = own[own_at + 2 * n + s] - others[at + 2 * m + k]
                near += weights[weights_at + k] if a * a + b * b + c * c <= limit2 else 0.0
        else:
            scratch[:m] = 0.0
            for i in range(d):
                for k in range(m):
                    a = own[own_at + i * n + s] - others[at + i * m + k]
                    scratch[k] += a * a
            for k in range(m):
                near += weights[weights_at + k] if scratch[k] <= limit2 else 0.0
        found += own_weights[own_weights_at + s] * near
        rest -= own_weights[own_weights_at + s] * upper[s]
        if found + rest < needed:
            return -1.0, 0.0
        if found >= enough:
            break
    return found, rest


@kernel
def close_samples(
    pairs: RowPairs,
    swap: Flags,  # whether the right row is reported on the left
    factor: Floats,
    within: Within,
    left: Samples,
    right: Samples,
    first: Ints,  # where the sample pairs of each pair begin; written if there is no room for them
    out: SamplePairs,
) -> None:
    """The pairs of samples that match (Dallachiesa et al. 2015, Eq. 20), in the order of the row reported on the left.

    Their weight is the product of both samples' weights and the ``factor`` of the pair of objects.
    """
    d, groups, count = out.left.shape[1], within.epsilon.shape[0], out.weight.shape[0] == 0
    limits, apart = np.empty(groups), np.empty(groups)
    out_left, out_right, out_weight = out.left, out.right, out.weight
    left_mass, left_samples, left_weights = left.mass, left.values, left.weights
    right_mass, right_samples, right_weights = right.mass, right.values, right.weights
    for i in range(pairs.left.shape[0]):
        a = pairs.left[i]
        b = pairs.right[i]
        limits_of(within, i, limits)
        n = left.length[a] // d
        m = right.length[b] // d
        a_begin = left.begin[a] - left.base
        b_begin = right.begin[b] - right.base
        p_begin = left.weights_begin[a] - left.weights_base if left_weights.shape[0] > 0 else 0
        q_begin = right.weights_begin[b] - right.weights_base if right_weights.shape[0] > 0 else 0
        at = 0 if count else first[i]
        outer, inner = (m, n) if swap[i] else (n, m)
        for u in range(outer):
            for v in range(inner):
                s, t = (v, u) if swap[i] else (u, v)
                apart[:] = 0.0
                for k in range(d):
                    gap = abs(left_samples[a_begin + k * n + s] - right_samples[b_begin + k * m + t])
                    apart[within.group[k]] += gap if within.absolute else gap * gap
                if (apart > limits).any():
                    continue
                if not count:
                    p, q = left_mass[a] / n, right_mass[b] / m
                    if left_weights.shape[0] > 0:
                        p = left_weights[p_begin + s]
                    if right_weights.shape[0] > 0:
                        q = right_weights[q_begin + t]
                    for k in range(d):
                        one, other = left_samples[a_begin + k * n + s], right_samples[b_begin + k * m + t]
                        out_left[at, k], out_right[at, k] = (other, one) if swap[i] else (one, other)
                    out_weight[at] = p * q * factor[i]
                at += 1
        if count:
            first[i + 1] = first[i] + at
