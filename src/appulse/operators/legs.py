"""Legs: what things do between their readings, made of these in order of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.kernels.legs import follow
from appulse.kernels.strings import are_words
from appulse.kernels.tangent import leads, ways
from appulse.model.batch import Batch
from appulse.model.carried import split_carried
from appulse.model.motion import Still, Straight
from appulse.model.objects import Objects
from appulse.operators.numbering import canonical_order
from appulse.operators.pending import HeldReadings, Pending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.motion import LegMotion
    from appulse.model.strings import Bytes, Labels


@dataclass(frozen=True)
class Legs(Batch):
    """Legs: ``rows`` are the readings that they start with; they lead to ``to`` (n, d) at ``end`` (microseconds).

    In joins a thing stays there while its reading is in the window, ``until`` a time.
    """

    rows: Objects
    end: Ints
    to: Floats
    until: Ints | None = None

    @property
    def over(self) -> Ints:
        """The last time at which another may be met."""
        return self.end if self.until is None else self.until


class Made(NamedTuple):
    """Legs that are known now, and readings that have the time of another of their key."""

    legs: Legs
    twice: Objects


# No one way between places is the shortest that are nearly opposite. Ways are at most 1.58 times as long as chords.
_FARTHEST, _FAR = 19e6, 12e6


class LegMaker:
    """The legs of one stream. ``push`` takes readings of ticks as they are completed.

    Things move in a plane, or along geodesics of an ``earth``. With a ``window`` each reading has a leg, if only of an
    instant; it waits for the next reading where this is needed to know where the leg leads.
    """

    def __init__(
        self, motion: LegMotion, earth: Earth | None = None, *, carried: bool = False, window: int | None = None
    ) -> None:
        self._motion, self._earth, self._carried, self._window = motion, earth, carried, window
        self._waits = window is None or isinstance(motion, Straight)
        self._held = HeldReadings(carried=carried)

    def __len__(self) -> int:
        return len(self._held.parts)

    @property
    def nbytes(self) -> int:
        """Bytes held of readings."""
        return self._held.parts.nbytes

    @property
    def pending(self) -> Pending | None:
        """The last reading of each key, where it may yet start a leg, in order of time; None: there is none."""
        return self._held.parts.all()

    @pending.setter
    def pending(self, held: Pending | None) -> None:
        self._held.set(held)

    @property
    def delay(self) -> int:
        """How far behind complete ticks a leg may begin that is not known yet."""
        return self._motion.longest if self._waits else 0

    @property
    def since(self) -> int | None:
        """No leg to come begins before this, unless by readings to come; None: nothing waits."""
        return self._held.parts.first_due

    def push(self, rows: Sequence[Objects], complete: int, *, ended: bool) -> Made | None:
        """The legs that follow from more readings, and none before ``complete`` being to come; None: no reading."""
        taken = self._held.about(rows, None if ended else complete - self._motion.longest)
        if not taken.rows and not rows:
            return None
        given = Objects.concat([*(held.rows for held in taken.rows), *rows])
        order, following, twice = _in_order(given, carried=self._carried)
        led = np.zeros(len(given), bool)
        led[: len(taken)] = np.concatenate([led[:0], *(held.led for held in taken.rows)])
        led, time = led[order], given.time[order]
        follows = following >= 0
        to = np.where(follows, following, np.arange(len(order)))
        # No reading to come is so near that it ends the leg, or the instant.
        over = ended | (time + self._motion.longest < complete)
        if isinstance(self._motion, Straight):
            joined = follows & self._joined(self._motion, given, order, order[to])
            led[to[joined]] = True
            # From reading to reading, and instants of those without a leg before or after.
            at = np.flatnonzero(joined | (((self._window is not None) | ~led) & (follows | over)))
            end = order[np.where(joined, to, np.arange(len(order)))[at]]
            legs = Legs(given.take(order[at]), given.time[end], given.centre.take(end, axis=0))
        else:
            follows, over = follows & self._waits, over | (not self._waits)
            at = np.flatnonzero(follows | over)
            legs = self._as_they_say(given.take(order[at]), follows[at], time[to[at]])
        waits = ~follows & ~over
        self._held.put_back(taken, order[waits], given, led[waits])
        legs = legs if self._window is None else replace(legs, until=legs.rows.time + self._window)
        return Made(legs, given.take(twice))

    def _joined(self, motion: Straight, given: Objects, at: Ints, to: Ints) -> Flags:
        """Whether the reading after each is near enough in time, and in space, to be reached from it."""
        gap, fastest = given.time[to] - given.time[at], motion.max_speed
        near: Flags = gap <= motion.longest
        if not len(at) or (fastest is None and (self._earth is None or _extent(given.centre[:, :3]) <= _FAR)):
            return near
        step = given.centre.take(to, axis=0) - given.centre.take(at, axis=0)
        if self._earth is not None:
            step = np.hstack([routes(self._earth, given.centre[at], given.centre[to]), step[:, 3:]])
            near &= np.hypot(step[:, 0], step[:, 1]) <= _FARTHEST
        if fastest is not None:
            near &= np.linalg.norm(step, axis=1) <= fastest * 1e-6 * gap
        return near

    def _as_they_say(self, rows: Objects, follows: Flags, next_time: Ints) -> Legs:
        """As readings say, until the next one, where one follows, or for the horizon."""
        if isinstance(self._motion, Still):
            return Legs(rows, rows.time, rows.centre)
        longest = rows.time + self._motion.longest
        end = np.where(follows, np.minimum(next_time, longest), longest)
        assert rows.velocity is not None  # noqa: S101 - readings of such a motion have one
        step = rows.velocity * ((end - rows.time) * 1e-6)[:, None]
        if self._earth is None:
            return Legs(rows, end, rows.centre + step)
        to = rows.centre.copy()
        leads(self._earth, rows.centre, step, to)
        to[:, 3 : 1 + step.shape[1]] += step[:, 2:]  # a climb, where it is known
        return Legs(rows, end, to)


class LegMakers:
    """The legs of all streams of a call."""

    def __init__(
        self,
        motions: Sequence[LegMotion],
        earth: Earth | None,
        carried: Sequence[bool],
        windows: Sequence[int] | None = None,
    ) -> None:
        lengths = [None] * len(motions) if windows is None else windows
        given = zip(motions, carried, lengths, strict=True)
        self.makers = [LegMaker(motion, earth, carried=own, window=length) for motion, own, length in given]

    def __len__(self) -> int:
        """Readings that may yet start a leg."""
        return sum(map(len, self.makers))

    @property
    def nbytes(self) -> int:
        """Bytes held of them."""
        return sum(maker.nbytes for maker in self.makers)

    def push(
        self, rows: Sequence[Sequence[Objects]], complete: int, *, ended: bool
    ) -> tuple[list[Legs | None], list[tuple[int, Objects]]]:
        """Legs by stream, and readings that have the time of another of their key, with their stream."""
        made = [maker.push(own, complete, ended=ended) for maker, own in zip(self.makers, rows, strict=True)]
        twice = [(i, one.twice) for i, one in enumerate(made) if one is not None and len(one.twice)]
        return [None if one is None else one.legs for one in made], twice

    @property
    def delay(self) -> int:
        """How far behind complete ticks a leg may begin that is not known yet."""
        return max(maker.delay for maker in self.makers)

    @property
    def since(self) -> int | None:
        """No leg to come begins before this, unless by readings to come; None: nothing waits."""
        return min((maker.since for maker in self.makers if maker.since is not None), default=None)

    @property
    def due(self) -> int | None:
        """What ticks have to be complete beyond for a leg to be known."""
        known = [maker.since + maker.delay for maker in self.makers if maker.since is not None]
        return min(known, default=None)

    @property
    def pending(self) -> dict[str, Pending]:
        """Readings that may yet start a leg, by name."""
        held = {f"pending{i}": maker.pending for i, maker in enumerate(self.makers)}
        return {name: batch for name, batch in held.items() if batch is not None}

    def restore(self, name: str, batch: Pending) -> None:
        """Take in what `pending` has of a name."""
        self.makers[int(name.removeprefix("pending"))].pending = batch


def _in_order(rows: Objects, *, carried: bool) -> tuple[Ints, Ints, Ints]:
    """The rows in order of time, where in it the next of each one's key is (-1: none), and those of a taken time."""
    names, thing = numbered(things(split_keys(rows.key, carried)[0], rows.group))
    time = rows.time
    order = np.argsort(time, kind="stable") if (np.diff(time) < 0).any() else np.arange(len(rows))
    following, twice = np.empty(len(rows), np.int64), np.empty(len(rows), np.bool_)
    follow(thing[order], len(names), time[order], following, twice)
    if not twice.any():
        return order, following, order[:0]
    order = canonical_order(rows)  # the first of one time stays
    follow(thing[order], len(names), time[order], following, twice)
    order, again = order[~twice], order[twice]
    following, twice = np.empty(len(order), np.int64), np.empty(len(order), np.bool_)
    follow(thing[order], len(names), time[order], following, twice)
    return order, following, again


def _extent(places: Floats) -> float:
    """What no two places are farther apart than."""
    return float(np.linalg.norm([np.ptp(column) for column in places.T]))


def routes(earth: Earth, at: Floats, to: Floats) -> Floats:
    """Metres east and north (n, 2) of the geodesics from places to others."""
    found = np.empty((len(at), 2))
    ways(earth, at, to, found)
    return found


def split_keys(keys: Bytes, carried: bool) -> tuple[Bytes, Bytes | None]:  # noqa: FBT001 - what keys are
    """Keys, and the columns behind them, where there are some."""
    return split_carried(keys) if carried else (keys, None)


def things(keys: Bytes, group: Labels | None) -> Ints:
    """A number for each row's key and group, the same for the same, in order of the keys' bytes within these rows."""
    if are_words(keys.offsets):
        words, codes = numbered(keys.data.view(np.uint64))
        order = np.argsort(words.byteswap())
    else:
        labels = keys.to_arrow().dictionary_encode()
        names, codes = labels.dictionary.to_pylist(), np.asarray(labels.indices)
        order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found: Ints = rank[codes]
    if group is None:
        return found
    compact = group.compact()
    return found * max(1, len(compact.values)) + compact.codes


def numbered(values: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """The different values as they come, and the place of each among them."""
    labels = pa.array(values).dictionary_encode()
    return np.asarray(labels.dictionary), np.asarray(labels.indices).astype(np.int64)
