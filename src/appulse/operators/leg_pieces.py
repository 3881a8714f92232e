"""Geodesic legs as pieces that are straight in degrees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.tangent import leads
from appulse.model.batch import Batch
from appulse.model.covariance import whitening
from appulse.model.positions import degrees_of, metres_of_degrees
from appulse.operators.legs import routes

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.geodesic import Earth

# Radians of a piece, ten kilometres on the Earth, and of one that is not halved; what others may be off at most, 3 m.
_LONG, _SHORT, _OFF = 10_000.0 / 6_378_137.0, 5e-6, 5e-7
# Beyond so many deviations a normal tail is below 1e-12.
_TAIL = 7.0


@dataclass(frozen=True)
class Pieces(Batch):
    """Pieces of legs, in order: the leg that each belongs to, from where to where on it, as shares, and in degrees."""

    owner: Ints
    share: Floats
    at: Floats
    to: Floats

    def unit(self, earth: Earth) -> Floats:
        """Metres of a degree of longitude and of latitude (n, 2)."""
        return metres_of_degrees(0.5 * (self.at[:, 1] + self.to[:, 1]), earth)

    def scale(self, earth: Earth, place: Floats, route: Floats, spread: Floats) -> Floats:
        """`whitening` in degrees of errors at the starts, which keep their angle to the leg."""
        owner, errors = self.owner, spread[self.owner]
        if spread.shape[1] > 1:
            here = _places(earth, place[owner], route[owner], self.share[:, 0])
            ahead = routes(earth, here, _places(earth, place[owner], route[owner], self.share[:, 1]))
            turn = np.arctan2(ahead[:, 0], ahead[:, 1]) - np.arctan2(route[owner, 0], route[owner, 1])
            cosine, sine = np.cos(turn), np.sin(turn)
            xx, xy, yy = errors.T
            both = 2.0 * xy * sine * cosine
            errors = np.column_stack(
                [
                    xx * cosine**2 + both + yy * sine**2,
                    xy * (cosine**2 - sine**2) + (yy - xx) * sine * cosine,
                    xx * sine**2 - both + yy * cosine**2,
                ]
            )
        scale: Floats = whitening(errors) * self.unit(earth)[:, [0, 1, 0]]
        return scale


def pieces_of(earth: Earth, place: Floats, route: Floats, begin: Floats) -> Pieces:
    """Legs from places along routes; near a pole, where a geodesic bends most in degrees, pieces are short."""
    length = np.hypot(route[:, 0], route[:, 1]) / earth.a
    parts = np.ceil(length / _LONG).astype(np.int64).clip(1)
    owner = np.repeat(np.arange(len(place)), parts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    share = np.column_stack([number, number + 1]) / parts[owner, None]
    left = _pieces(earth, place, route, begin, owner, share)
    done = []
    while len(left):
        long = length[left.owner] * (left.share[:, 1] - left.share[:, 0])
        # How far from the pole a piece keeps at least: its geodesic bends by the tangent of the latitude.
        apart = np.radians(90.0 - np.maximum(np.abs(left.at[:, 1]), np.abs(left.to[:, 1]))) - 0.5 * long
        off = long**2 > 8.0 * _OFF * np.tan(apart.clip(0.0, 1.57))
        halved = off & (long > _SHORT)
        done.append(left.filter(~halved))
        owner, share = left.owner[halved], left.share[halved]
        half = share.mean(axis=1)
        halves = np.column_stack([share[:, 0], half, half, share[:, 1]]).reshape(-1, 2)
        left = _pieces(earth, place, route, begin, np.repeat(owner, 2), halves)
    every = Pieces.concat(done) if done else left
    return every.take(np.lexsort((every.share[:, 0], every.owner))) if len(done) > 1 else every


def widened(pieces: Pieces, route: Floats, deviation: Floats) -> Pieces:
    """Pieces that reach into those before and after them, as far as errors do, or by half of their length.

    What a leg passes through where one piece ends and another begins, one of them then passes through as surely.
    """
    owner, share, at, to = pieces.owner, pieces.share, pieces.at.copy(), pieces.to.copy()
    own = share[:, 1] - share[:, 0]
    more = _TAIL * deviation[owner] / np.maximum(np.hypot(route[owner, 0], route[owner, 1]), 1e-9)
    more = np.minimum(more, 0.5 * own)
    joined = np.flatnonzero(owner[1:] == owner[:-1])
    for ends, here, beside, back in ((at, joined + 1, joined, -1.0), (to, joined, joined + 1, 1.0)):
        part = back * np.minimum(1.0, more[here] / own[beside])
        ends[here] += part[:, None] * (pieces.to[beside] - pieces.at[beside])
    return replace(pieces, at=at, to=to)


def _pieces(earth: Earth, place: Floats, route: Floats, begin: Floats, owner: Ints, share: Floats) -> Pieces:
    """Pieces of legs, longitudes as those where they ``begin`` go on."""
    # Most end where the next one begins.
    ends = np.ones(len(owner), bool)
    ends[:-1] = (owner[1:] != owner[:-1]) | (share[1:, 0] != share[:-1, 1])
    whose, where = np.append(owner, owner[ends]), np.append(share[:, 0], share[ends, 1])
    places = degrees_of(_places(earth, place[whose], route[whose], where), earth)[:, ::-1]
    at, to = places[: len(owner)], np.empty((len(owner), 2))
    to[:-1], to[ends] = at[1:], places[len(owner) :]
    at[:, 0] += _turns(begin[owner, 0] - at[:, 0])
    to[:, 0] += _turns(at[:, 0] - to[:, 0])
    return Pieces(owner, share, at, to)


def _turns(degrees: Floats) -> Floats:
    turns: Floats = 360.0 * np.round(degrees / 360.0)
    return turns


def _places(earth: Earth, place: Floats, route: Floats, share: Floats) -> Floats:
    """Places on routes."""
    to = place.copy()
    leads(earth, place, route * share[:, None], to)
    return to
