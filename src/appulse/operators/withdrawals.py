"""Rows that are withdrawn: which of the rows that came each withdrawal means, and those that wait for their row.

A withdrawal has the key, the time and the group of its row, and perhaps its values. Of several rows it means one with
its values; then one that came in an earlier step; then the last in canonical order. One that finds no row waits until
no row of its time can come any more. A row in place of another never withdraws itself, and does not wait: of several
that come in one step, where nothing says which came first, the last in canonical order stays. Rows that a condition
left out are known as well, as long as rows of their time can come: a withdrawal may mean one of them.

So whatever order the changes of one row in a step had, what is left is what some feed of a table leaves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.newest import key_numbers
from appulse.model.batch import Batch
from appulse.model.changes import (
    LEFT_OUT,
    ODD,
    WITHDRAWS,
    WITHDRAWS_ANY,
    WITHDRAWS_EARLIER,
    WITHDRAWS_FORMER,
    WITHDRAWS_LEFT_OUT,
    WITHDRAWS_LIKELY,
    WITHDRAWS_OTHER,
)
from appulse.model.objects import Objects, contents_of
from appulse.model.strings import Bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.uncertainty import Form
    from appulse.operators.labels import LabelNumbers
    from appulse.operators.store import WindowBuffer

    Keys = Callable[[int, Objects], Bytes]
    Order = Callable[[int, Objects], Ints]
    Held = Sequence[tuple[int, Objects]]  # rows by stream
    Identity = tuple[int, bytes, bytes]  # time, key, group
    _Near = tuple[Ints, Ints]  # withdrawals, and rows of a part that they may mean

#: The group of rows of a window that are withdrawn: no row to come is in it.
GONE = -1
_COMPACT_FROM = 4096
_LAST_BITS = (1 << 16) - 1
_EXACT, _REPLACING = (WITHDRAWS_FORMER, WITHDRAWS_LEFT_OUT), (WITHDRAWS_OTHER, WITHDRAWS_EARLIER)
_VALUED = (*_EXACT, WITHDRAWS, WITHDRAWS_LIKELY)
_PATIENT = (WITHDRAWS, WITHDRAWS_ANY, WITHDRAWS_LIKELY, WITHDRAWS_EARLIER)
_SIMPLE = (WITHDRAWS, WITHDRAWS_ANY, WITHDRAWS_LEFT_OUT)
# Whose turn it is, by what a withdrawal does.
_TURNS = np.array([0, 0, 4, 2, 1, 5, 3, 4, 0])


@dataclass(frozen=True)
class Withdrawals(Batch):
    """Rows that withdraw others: the identity of their row, what they do, and a digest of their values.

    Where it is ``unsure`` whether a row came and has left its window since, the withdrawal may be without a row.
    """

    time: Ints
    key: Bytes
    group: Bytes
    does: Ints
    values: Bytes
    unsure: Flags


def withdrawals(rows: Objects, keys: Bytes, unsure: Flags) -> Withdrawals:
    """What rows withdraw; ``keys`` are theirs, without what they carry."""
    assert rows.change is not None  # noqa: S101 - else they withdraw nothing
    return Withdrawals(rows.time, keys, groups_of(rows), rows.change, Bytes.of(digests(rows)), unsure)


def groups_of(rows: Objects) -> Bytes:
    """The group of each row, as bytes."""
    if rows.group is None:
        return Bytes(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.uint8))
    return Bytes.of([rows.group.values[code] for code in rows.group.codes.tolist()])


def digests(rows: Objects) -> list[bytes]:
    """A digest of the values of each row: equal for equal ones."""
    plain = replace(rows, group=None)
    parts = [contents_of(plain)]
    if rows.measure is not None:
        parts.append([value.tobytes() for value in rows.measure])
    if rows.differ is not None:
        parts.append([rows.differ.values[code] for code in rows.differ.codes.tolist()])
    return parts[0] if len(parts) == 1 else [b"".join(of) for of in zip(*parts, strict=True)]


def identities(time: Ints, key: Bytes, group: Bytes) -> list[Identity]:
    """What tells rows of one stream apart, but for their values."""
    return list(zip(time.tolist(), key.to_list(), group.to_list(), strict=True))


def some_like(at: Ints, keys: Callable[[Ints], Bytes], wanted: Withdrawals | Objects) -> Ints:
    """Of rows that have a time among those wanted, the ones that have a key among those, too, and few others."""
    numbers, theirs = np.empty(len(at), np.int64), np.empty(len(wanted), np.int64)
    mine = keys(at)
    key_numbers(mine.offsets, mine.data, numbers)
    key_numbers(wanted.key.offsets, wanted.key.data, theirs)
    return at[_among(numbers, theirs)]


def _among(values: Ints, wanted: Ints) -> Ints:
    """Where values are some of those that are wanted; most are none by their last bits."""
    some = np.zeros(_LAST_BITS + 1, bool)
    some[wanted & _LAST_BITS] = True
    near = np.flatnonzero(some[values & _LAST_BITS])
    known, found = np.sort(wanted), values[near]
    at: Ints = near[known[np.minimum(np.searchsorted(known, found), len(known) - 1)] == found]
    return at


def expanded(begin: Ints, end: Ints) -> Ints:
    """The numbers from each beginning to its end, one run after the other."""
    counts = end - begin
    first = np.cumsum(counts) - counts
    numbers: Ints = np.arange(int(counts.sum())) + np.repeat(begin - first, counts)
    return numbers


def _hashes(time: Ints, key: Bytes) -> Ints:
    """A number of each time and key; few differ and have the same."""
    numbers = np.empty(len(time), np.int64)
    key_numbers(key.offsets, key.data, numbers)
    hashed: Ints = numbers + time * ODD
    return hashed


class _Known:
    """Rows by time and key, and which of them stand; some were ``left_out``."""

    def __init__(self, rows: Objects | Withdrawals, *, left_out: bool) -> None:
        self.known, self.left_out = rows, left_out
        self.stands = np.ones(len(rows), bool)
        self._hashed: Ints | None = None
        self._order: Ints | None = None

    def keys(self) -> Bytes:
        """The keys of the rows, as withdrawals know them."""
        return self.known.key

    @property
    def grouped(self) -> bool:
        """Whether rows are in groups."""
        return isinstance(self.known.group, Bytes) and len(self.known.group.data) > 0

    def digests(self, at: Ints) -> list[bytes]:
        """Digests of the values of some rows."""
        rows = self.known.take(at)
        return rows.values.to_list() if isinstance(rows, Withdrawals) else digests(rows)

    def matching(self, wanted: Withdrawals, hashes: Ints) -> tuple[Ints, Ints]:
        """Each pair of a withdrawal and a row that stands, has its key and time, and may be meant."""
        if self._hashed is None:
            self._own = self.keys()
            self._hashed = _hashes(self.known.time, self._own)
            # Many a part is put together with others before it is searched again.
            near, order = _among(self._hashed, hashes), np.argsort(hashes)
            runs = [np.searchsorted(hashes[order], self._hashed[near], side) for side in ("left", "right")]
            at, asked = np.repeat(near, runs[1] - runs[0]), order[expanded(*runs)]
        else:
            if self._order is None:
                self._order = np.argsort(self._hashed)
                self._hashed = self._hashed[self._order]
            runs = [np.searchsorted(self._hashed, hashes, side) for side in ("left", "right")]
            at, asked = self._order[expanded(*runs)], np.repeat(np.arange(len(hashes)), runs[1] - runs[0])
        same = self.stands[at] & (self.known.time[at] == wanted.time[asked])
        same &= wanted.does[asked] != (WITHDRAWS if self.left_out else WITHDRAWS_LEFT_OUT)
        at, asked = at[same], asked[same]
        if len(at) == 0:
            return asked, at
        mine, theirs = self._own.take(at), wanted.key.take(asked)
        if not (np.array_equal(mine.offsets, theirs.offsets) and np.array_equal(mine.data, theirs.data)):
            same = np.array([a == b for a, b in zip(mine.to_list(), theirs.to_list(), strict=True)])
            at, asked = at[same], asked[same]
        return asked, at


class _Part(_Known):
    """Rows that came together; ``keys`` gives those that withdrawals know."""

    def __init__(
        self, rows: Objects, stream: int, keys: Callable[[int, Objects], Bytes], *, left_out: bool = False
    ) -> None:
        super().__init__(rows, left_out=left_out)
        self.rows, self._stream, self._keys = rows, stream, keys

    def keys(self) -> Bytes:
        return self._keys(self._stream, self.rows)

    @property
    def grouped(self) -> bool:
        return self.rows.group is not None

    @property
    def standing(self) -> Objects:
        return self.rows if self.stands.all() else self.rows.filter(self.stands)


class Ledger:
    """The rows of some streams that stand, by what withdrawals know of them.

    ``keys`` gives the keys of rows, and ``order`` their canonical order.
    """

    def __init__(self, streams: int, keys: Keys, order: Order) -> None:
        self._keys, self._order = keys, order
        self._parts: list[list[_Part]] = [[] for _ in range(streams)]
        self._waiting: list[list[Withdrawals]] = [[] for _ in range(streams)]
        # Rows that were left out: in earlier steps, and in this one.
        self._left_out: list[list[Withdrawals]] = [[] for _ in range(streams)]
        self._leaving: list[list[Objects]] = [[] for _ in range(streams)]
        self._fresh: list[_Part] = []
        self._kept = 0

    def __len__(self) -> int:
        """Rows that stand, and some that have left."""
        return sum(int(part.stands.sum()) for parts in self._parts for part in parts)

    @property
    def nbytes(self) -> int:
        rows = sum(part.rows.nbytes for parts in self._parts for part in parts)
        return rows + sum(part.nbytes for _, part in (*self.waiting(), *self.left_out()))

    @property
    def oldest_waiting(self) -> int | None:
        """The least time of a row that a withdrawal waits for."""
        return min((int(part.time.min()) for parts in self._waiting for part in parts if len(part)), default=None)

    def standing(self) -> Held:
        """The rows that stand, by stream."""
        parts = [(stream, part.standing) for stream, own in enumerate(self._parts) for part in own]
        return [(stream, rows) for stream, rows in parts if len(rows)]

    def waiting(self) -> list[tuple[int, Withdrawals]]:
        """The withdrawals that wait for their rows, by stream."""
        return [(stream, part) for stream, parts in enumerate(self._waiting) for part in parts if len(part)]

    def left_out(self) -> list[tuple[int, Withdrawals]]:
        """The rows that were left out, by stream."""
        return [(stream, part) for stream, parts in enumerate(self._left_out) for part in parts if len(part)]

    def stand(self, stream: int, rows: Objects) -> None:
        """These rows stand from now on."""
        parts = self._parts[stream]
        if len(rows):
            # Those of the last step have been looked at already.
            parts.append(next((part for part in self._fresh if part.rows is rows), None) or self._part(stream, rows))
        # Each at least twice as large as the next: few parts, and a row is moved a few times.
        while len(parts) > 1 and len(parts[-2].rows) < 2 * len(parts[-1].rows):
            parts[-2:] = [self._part(stream, Objects.concat([part.standing for part in parts[-2:]]))]

    def _part(self, stream: int, rows: Objects) -> _Part:
        return _Part(rows, stream, self._keys)

    def wait(self, stream: int, asked: Withdrawals) -> None:
        """These withdrawals wait for their rows, or for what withdraws them where they are rows that were left out."""
        left = asked.does == LEFT_OUT
        for some, part in ((self._left_out, asked.filter(left)), (self._waiting, asked.filter(~left))):
            if len(part):
                some[stream].append(part)

    def leave_out(self, stream: int, rows: Objects) -> None:
        """These rows came in this step, and are left out."""
        if len(rows):
            self._leaving[stream].append(rows)

    def forget(self, held: Callable[[int, Objects], Flags], *, now: bool = False) -> None:
        """Leave out rows that are not ``held`` any more, where they may be many, or ``now``."""
        rows = sum(len(part.rows) for parts in self._parts for part in parts)
        if not now and (rows < _COMPACT_FROM or rows < 2 * self._kept):
            return
        for stream, parts in enumerate(self._parts):
            if parts:
                whole = Objects.concat([part.standing for part in parts])
                self._parts[stream] = [self._part(stream, whole.filter(held(stream, whole)))]
        self._kept = len(self)

    def renumber(self, numbers: Callable[[int, Objects], Ints]) -> None:
        """Rows that stand have these numbers from now on."""
        for stream, parts in enumerate(self._parts):
            for part in parts:
                part.rows = part.known = replace(part.rows, number=numbers(stream, part.rows))

    def settle(
        self,
        came: Held,
        asked: Sequence[tuple[int, Withdrawals]],
        held: Callable[[int, Objects], Flags],
        waiting: Held = (),
    ) -> tuple[Held, Held]:
        """Of the rows that came those that stay, and of the rows that stood those that are withdrawn.

        ``asked`` are new withdrawals, which wait if they find no row; rows that stood have to be ``held`` yet. Rows
        that are ``waiting`` since earlier steps are among those that stay.
        """
        for stream, part in asked:
            self.wait(stream, part)
        if not any(map(len, self._waiting)):
            for stream in range(len(self._waiting)):
                self.have_left(stream)
            return [*waiting, *came], []
        stay, gone, self._fresh = [], [], []
        for stream, wanted in enumerate(self._waiting):
            earlier, fresh = (
                [self._part(stream, rows) for s, rows in parts if s == stream] for parts in (waiting, came)
            )
            if wanted:
                found = self._settled(stream, self._parts[stream], earlier, fresh, partial(held, stream))
                gone += [(stream, rows) for rows in found]
                self._fresh += fresh
            else:
                self.have_left(stream)
            stay += [(stream, part.standing) for part in (*earlier, *fresh) if part.stands.any()]
        return stay, gone

    def stands_of(self, stream: int, old: Sequence[Objects], fresh: Sequence[Objects]) -> list[Flags]:
        """Which rows stand, of those that their keeper holds and of those that come to them, part by part."""
        parts = [self._part(stream, rows) for rows in old], [self._part(stream, rows) for rows in fresh]
        if self._waiting[stream]:
            self._settled(stream, [], *parts, lambda rows: np.ones(len(rows), bool))
        else:
            self.have_left(stream)
        return [part.stands for own in parts for part in own]

    def _settled(
        self, stream: int, old: list[_Part], waiting: list[_Part], fresh: list[_Part], held: Callable[[Objects], Flags]
    ) -> list[Objects]:
        """Rows that stood and are withdrawn; those that wait, or came, and are do not stand."""
        wanted = Withdrawals.concat(self._waiting[stream])
        left = [_Known(rows, left_out=True) for rows in self._left_out[stream]]
        leaving = [_Part(rows, stream, self._keys, left_out=True) for rows in self._leaving[stream]]
        parts: list[_Known] = [*old, *waiting, *left, *fresh, *leaving]
        begins = np.cumsum([0, *(len(part.known) for part in parts)])
        before = int(begins[len(old) + len(waiting) + len(left)])
        hashes = _hashes(wanted.time, wanted.key)
        near = []
        for i, part in enumerate(parts):
            asked, at = part.matching(wanted, hashes)
            if len(at) and i < len(old):
                still = held(old[i].rows.take(at))
                asked, at = asked[still], at[still]
            near.append((asked, at))
        found = _unambiguous(parts, begins, near, wanted, before)
        if found is None:
            # Those that know the values of their rows choose first, those that take any last.
            turn, values = _TURNS[-wanted.does].tolist(), wanted.values.to_list()
            first = np.array(sorted(range(len(wanted)), key=lambda i: (turn[i], values[i])))
            turns = _asked(wanted.take(first))
            named = self._named(stream, parts, begins, near)
            named.part_updates(turns, before)
            found = np.full(len(wanted), -1)
            found[first] = [named.taken(one, before) for one in turns]
        unmet = wanted.filter((found < 0) & np.isin(wanted.does, _PATIENT))
        self._waiting[stream] = [unmet] if len(unmet) else []
        gone = []
        for i, part in enumerate(parts):
            own = np.sort(found[(found >= begins[i]) & (found < begins[i + 1])]) - begins[i]
            if len(own):
                part.stands[own] = False
                gone += [old[i].rows.take(own)] if i < len(old) else []
        earlier = self._left_out[stream]
        self._left_out[stream] = [rows.filter(part.stands) for rows, part in zip(earlier, left, strict=True)]
        self._leaving[stream] = [part.standing for part in leaving]
        self.have_left(stream)
        return gone

    def have_left(self, stream: int) -> None:
        """Rows that were left out in this step were so in an earlier one from now on."""
        came = [rows for rows in self._leaving[stream] if len(rows)]
        if not came:
            return
        self._leaving[stream] = []
        parts = self._left_out[stream]
        parts += [withdrawals(rows, self._keys(stream, rows), np.zeros(len(rows), bool)) for rows in came]
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            parts[-2:] = [Withdrawals.concat(parts[-2:])]

    def _named(self, stream: int, parts: Sequence[_Known], begins: Ints, near: Sequence[_Near]) -> _Named:
        """The rows that may be wanted, by identity."""
        some, places, earlier, left_out = [], [], [], set[int]()
        for part, begin, (_, at) in zip(parts, begins.tolist(), near, strict=False):
            own = np.unique(at)
            left_out |= set((own + begin).tolist()) if part.left_out else set()
            if len(own) and isinstance(part, _Part):
                some.append(replace(part.rows.take(own), number=None, frame=None, change=None))
                places.append(own + begin)
            elif len(own) and isinstance(part.known, Withdrawals):
                earlier += list(zip((own + begin).tolist(), _asked(part.known.take(own)), strict=True))
        named = _Named.of(earlier, left_out)
        if some:
            rows, place = Objects.concat(some), np.concatenate(places)
            order = self._order(stream, rows)
            named.put(replace(rows, key=self._keys(stream, rows)).take(order), place[order].tolist())
        return named

    def lapse(self, before: int) -> list[tuple[int, Withdrawals]]:
        """Withdrawals that will find no row any more, as none of a time before this can come."""
        lapsed = []
        for stream, left in enumerate(self._left_out):
            kept = (part if (stay := part.time >= before).all() else part.filter(stay) for part in left)
            self._left_out[stream] = [part for part in kept if len(part)]
        for stream, parts in enumerate(self._waiting):
            if not parts:
                continue
            waiting = Withdrawals.concat(parts)
            over = waiting.time < before
            if over.any():
                lapsed.append((stream, waiting.filter(over)))
                self._waiting[stream] = [waiting.filter(~over)] if not over.all() else []
        return lapsed


def _unambiguous(
    parts: Sequence[_Known], begins: Ints, near: Sequence[_Near], wanted: Withdrawals, before: int
) -> Ints | None:
    """The place of the row that each withdrawal means, -1 for none; None where `_Named` has to decide.

    That is where several withdraw rows of one identity, or where the order of rows decides.
    """
    found = np.full(len(wanted), -1)
    asked = np.concatenate([np.empty(0, np.int64), *(asked for asked, _ in near)])
    if len(wanted.group.data) or any(part.grouped for part in parts) or len(asked) == 0:
        return found if len(asked) == 0 else None
    place = np.concatenate([at + begin for (_, at), begin in zip(near, begins.tolist(), strict=False)])
    if len(np.unique(place)) < len(place) or not np.isin(wanted.does, _SIMPLE).all():
        return None
    score, does = (place < before).astype(np.int64), wanted.does[asked]
    several = np.bincount(asked, minlength=len(wanted))[asked] > 1
    if several.any() or (does == WITHDRAWS_LEFT_OUT).any():
        held = [part.digests(at) for part, (_, at) in zip(parts, near, strict=True) if len(at)]
        values = np.array([digest for own in held for digest in own], object)
        same = values == np.array(wanted.values.to_list(), object)[asked]
        score += 2 * ((does != WITHDRAWS_ANY) & same)
        meant = same | (does != WITHDRAWS_LEFT_OUT)
        asked, score, place = asked[meant], score[meant], place[meant]
    order = np.lexsort((score, asked))
    asked, score, place = asked[order], score[order], place[order]
    tied = (asked[1:] == asked[:-1]) & (score[1:] == score[:-1])
    last = np.append(asked[1:] != asked[:-1], True)
    if (tied & last[1:]).any():
        return None
    found[asked[last]] = place[last]
    return found


def _asked(wanted: Withdrawals) -> list[tuple[Identity, int, bytes]]:
    return list(
        zip(
            identities(wanted.time, wanted.key, wanted.group),
            wanted.does.tolist(),
            wanted.values.to_list(),
            strict=True,
        )
    )


@dataclass
class _Named:
    """Rows by identity, each list in canonical order, with digests of their values where these matter."""

    rows: defaultdict[Identity, list[int]]
    values: dict[int, bytes]
    left_out: set[int]
    updates: dict[Identity, list[int]] = field(default_factory=dict)  # rows in place of others, of this step
    spare: Counter[Identity] = field(default_factory=Counter)  # how many of these were withdrawn by their values

    @classmethod
    def of(cls, earlier: Sequence[tuple[int, tuple[Identity, int, bytes]]], left_out: set[int]) -> _Named:
        """Begin with rows that were left out in ``earlier`` steps, as these come first."""
        named = cls(defaultdict(list), {}, left_out)
        for i, (identity, _, values) in earlier:
            named.rows[identity].append(i)
            named.values[i] = values
        return named

    def put(self, rows: Objects, places: Sequence[int]) -> None:
        """Rows that may be wanted, in canonical order, and where they are."""
        for i, identity in zip(places, identities(rows.time, rows.key, groups_of(rows)), strict=True):
            self.rows[identity].append(i)
        self.values.update(zip(places, digests(rows), strict=True))

    def part_updates(self, asked: Sequence[tuple[Identity, int, bytes]], before: int) -> None:
        """Set rows apart that came in place of others: those withdraw others first, and never themselves."""
        for identity, does, values in asked:
            own = self.rows.get(identity)
            if does in _REPLACING and own:
                taken = self.updates.setdefault(identity, [])
                free = (i for i in own if i >= before and self.values[i] == values and i not in taken)
                taken.append(next(free, -1))
        for identity, mine in self.updates.items():
            self.rows[identity][:], mine[:] = (
                [i for i in self.rows[identity] if i not in mine],
                [i for i in self.rows[identity] if i in mine],
            )

    def taken(self, asked: tuple[Identity, int, bytes], before: int) -> int:
        """The row that a withdrawal means, which no other means then; -1: there is none."""
        identity, does, values = asked
        own, updates = self.rows.get(identity, []), self.updates.get(identity, [])
        if does in _REPLACING:
            # The last of the updates stays, unless another one has gone in its place.
            those = own or updates[:-1]
            if not those and updates and (does == WITHDRAWS_EARLIER or self.spare[identity]):
                those = updates
                self.spare[identity] -= 1
        else:
            may = [[i for i in of if self._may(i, does)] for of in (own, updates)]
            equal = ([i for i in of if self.values[i] == values] for of in may if does in _VALUED)
            fits = next(filter(None, equal), [])
            if does == WITHDRAWS_LIKELY:
                fits = [i for i in own if i < before] or fits
            those = fits if fits or does in _EXACT else may[0] or may[1]
        if not those:
            return -1
        # A row that another one of its table withdraws came with that one.
        chosen = ([i for i in those if (i < before) is not (does == WITHDRAWS_FORMER)] or those)[-1]
        of = own if chosen in own else updates
        of.remove(chosen)
        if of is updates and does not in _REPLACING:
            self.spare[identity] += 1
        return chosen

    def _may(self, row: int, does: int) -> bool:
        """Whether a withdrawal that knows values may mean a row: one that was left out, or not."""
        return does not in (WITHDRAWS, WITHDRAWS_LEFT_OUT) or (row in self.left_out) == (does == WITHDRAWS_LEFT_OUT)


def same_rows(store: WindowBuffer, form: Form, rows: Objects, labels: tuple[LabelNumbers, LabelNumbers]) -> Ints:
    """Where a store holds rows that are the same as some others, one for each that it has."""
    near = some_like(_among(store.time.view, rows.time), store.keys, rows)
    at: Ints = near[store.group.view[near] != GONE]
    if len(at) == 0 or _one_each(at, store, rows):
        return at
    held = store.objects(form, at, *labels)
    places: dict[Identity, list[int]] = defaultdict(list)
    for i, identity in enumerate(identities(held.time, held.key, groups_of(held))):
        places[identity].append(i)
    found = []
    for i, identity in enumerate(identities(rows.time, rows.key, groups_of(rows))):
        own = places[identity]
        if len(own) > 1:
            values, wanted = digests(held.take(np.array(own))), digests(rows.slice(i, i + 1))[0]
            own.insert(0, own.pop(values.index(wanted) if wanted in values else 0))
        if own:
            found.append(own.pop(0))
    same: Ints = np.sort(at[np.array(found, np.int64)])
    return same


def _one_each(at: Ints, store: WindowBuffer, rows: Objects) -> bool:
    """Whether as many rows of a store as are wanted are the only ones of their times and keys."""
    if len(at) != len(rows) or rows.group is not None:
        return False
    sides = (store.time.view[at], store.keys(at)), (rows.time, rows.key)
    found = []
    for time, keys in sides:
        numbers = np.empty(len(time), np.int64)
        key_numbers(keys.offsets, keys.data, numbers)
        order = np.lexsort((numbers, time))
        found.append((time[order], numbers[order], keys.take(order)))
    (time, numbers, keys), (times, others, wanted) = found
    alone = (time[1:] != time[:-1]) | (numbers[1:] != numbers[:-1])
    same = np.array_equal(time, times) and np.array_equal(numbers, others) and bool(alone.all())
    return same and np.array_equal(keys.offsets, wanted.offsets) and np.array_equal(keys.data, wanted.data)
