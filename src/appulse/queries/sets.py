"""Standing queries that come and go, and the rows that satisfy them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.queries.boxed import Boxed, JoinGroup, Smaller, is_product
from appulse.queries.condition import MOST_LENGTH, parse, too_long
from appulse.queries.holding import Conditions
from appulse.queries.index import LEAST, MOST, NULL, BoxIndex, Met, together
from appulse.queries.outcomes import Added, Failed, Refused, reason_of
from appulse.queries.places import PLACE_X, PLACE_Y
from appulse.queries.regions import QueryRegions
from appulse.queries.rows import TIME, Rows, each_once
from appulse.queries.slots import ALIVE, GrowingColumn, SlotsByKey, as_keys, last_of_each, taken, with_newer
from appulse.queries.templates import MOST_BOXES, Boxes, Template, Texts, alone, template

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from appulse.kernels.arrays import Flags, Ints, Ints32
    from appulse.kernels.near_regions import Readings
    from appulse.model.regions import RegionSet
    from appulse.queries.columns import Values
    from appulse.queries.condition import Condition
    from appulse.queries.keys import Range
    from appulse.queries.places import Place
    from appulse.queries.regions import Found, GivenRegions

# What is known of a query beside whether it stands, as bits.
_EXACT, _SEVERAL, _NORMAL, _ALONE = np.uint8(2), np.uint8(4), np.uint8(8), np.uint8(16)
_ANYWHERE = "TRUE"  # the condition of who asks for a region alone
_APART_FROM = b"\0"  # before the shapes of conditions whose regions stay in them
_LEAST_DEAD = 4096
_APART = 1 << 14  # queries: a set from here on is made smaller by a thread
_MOST_AXES = 64  # beyond, the order of two columns is asked row by row


class QuerySet:
    """Queries over columns of some types, known by their keys. A query added again takes the place of the old one.

    A query is known by its slot until the next `add`, `remove`, `expire`, `settle` or `tidy`.
    """

    def __init__(
        self,
        types: Mapping[str, pa.DataType],
        key_type: pa.DataType,
        read: Callable[[str], Condition] = parse,
        lanes: Callable[[Template], JoinGroup] | None = None,
        place: Place | None = None,
        normal: Collection[str] = (),
    ) -> None:
        """``place`` are the columns that regions are of; those ``normal`` have independent normal errors."""
        self._types, self._read, self._lanes, self.key_type = dict(types), read, lanes, key_type
        self._place, self._normal = place, frozenset(normal)
        #: Whether some query has to be asked of samples, and whether some other has several boxes.
        self.samples = self.several = False
        self.regions = QueryRegions(place)
        # The first axis is that of lanes; it is there for queries that bound no column, too.
        self._axes: dict[str | None, int] = {None: 0}
        self._index = BoxIndex()
        self._templates: list[Template] = []
        self._shapes: dict[bytes, int | None] = {}
        self._known = SlotsByKey(key_type)
        self._state, self._template = np.empty(0, np.uint8), np.empty(0, np.int32)
        self._boundless = np.empty(0, np.int32)  # slots of queries that are asked of all rows, not among the boxes
        self._special = False  # whether some query has several boxes, or asks more than they say
        self._alone = False  # whether some query asks for a region alone, and so is not among the boxes
        self._texts = GrowingColumn(pa.large_string())
        self.counts, self.labels = np.empty(0, np.uint32), np.empty(0, np.int32)
        self.until = np.empty(0, np.int64)
        self._tested = np.empty(0, np.uint32)  # as long as all boxes say it all, there are none
        self._size = self._alive = 0
        self._failed: list[Failed] = []
        self._lock = Lock()  # held by who writes down what several threads find out
        self._smaller: Smaller | None = None

    def __len__(self) -> int:
        """Queries that stand."""
        return self._alive

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the texts, roughly."""
        return self._index.nbytes + self._known.nbytes + self.regions.nbytes + 9 * self._size

    def keys(self, slots: Ints32) -> pa.Array:
        """The keys of queries by slot."""
        return self._known.values.take(slots)

    def texts(self, slots: Ints32) -> pa.Array:
        """The texts of queries by slot."""
        return self._texts.take(slots)

    def add(
        self,
        keys: pa.Array,
        texts: pa.Array,
        labels: Ints32 | None = None,
        bounds: Mapping[str, Range] | None = None,
        until: Ints | None = None,
        regions: GivenRegions | None = None,
    ) -> Added:
        """Take queries in; of those with one key the last stands. Refused ones leave what stood as it was.

        Of queries that have one of ``regions``, rows lie in it as well; they may do without a text.

        ``labels`` are numbers that the caller wants to find again, in `labels` by slot. ``bounds`` bound axes that are
        no columns, a range for each query; ``until`` are the last times, along `TIME`, at which queries hold.
        """
        if until is not None:
            bounds = {**(bounds or {}), TIME: (np.where(until < MOST, LEAST, NULL), until)}
        keys = as_keys(keys, self.key_type)
        if regions is not None:
            bare = np.array([shape is not None for shape in regions.shapes], bool)
            texts = pc.if_else(pc.and_(pa.array(bare), pc.is_null(texts)), _ANYWHERE, texts)
        texts = (texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts).cast(pa.large_string())
        nameless = np.asarray(keys.is_null(nan_is_null=True))
        refused = [Refused(i, "the key is null") for i in np.flatnonzero(nameless).tolist()]
        refused += [
            Refused(i, "the condition is null")
            for i in np.flatnonzero(np.asarray(texts.is_null()) & ~nameless).tolist()
        ]
        long = np.asarray(pc.utf8_length(texts).fill_null(0)) > MOST_LENGTH
        usable = ~nameless & np.asarray(texts.is_valid())
        refused += [Refused(i, too_long(len(texts[i].as_py()))) for i in np.flatnonzero(usable & long).tolist()]
        rows = np.flatnonzero(usable & ~long)
        found = Texts.of(texts.take(pa.array(rows)))
        made, wrong = self._boxed(found, lifts=regions is None)
        refused += [Refused(int(rows[i]), reason) for i, reason in wrong]
        good = np.sort(np.concatenate([np.empty(0, np.int64), *(one.members for one in made)]))
        inside, region = self._inside(made, rows, regions)
        bad = {int(region[one.row]): one.why for one in inside.bad}
        refused += [Refused(int(rows[i]), why, region=True) for i, why in bad.items()]
        good = good[~np.isin(good, list(bad))] if bad else good
        good = good[last_of_each(keys.take(pa.array(rows[good])))]
        # Nothing is renumbered before all is in: templates that only the new ones have are known by number here.
        self._forget(self.find(keys.take(pa.array(rows[good]))))
        slots = np.full(len(rows), -1, np.int64)
        slots[good] = self._size + np.arange(len(good))
        self._grow(keys.take(pa.array(rows[good])), found.texts.take(pa.array(good)))
        # Of queries that are refused, or replaced by later ones, no region stays.
        inside = inside.take(np.flatnonzero(slots[region[inside.rows]] >= 0))
        at = region[inside.rows]
        bounds = {**(bounds or {}), **self.regions.add(inside, rows[at], len(keys))}
        self.regions.number(slots[at], self._size)
        for name in bounds or {}:
            self._axes.setdefault(name, len(self._axes))
        self.labels = with_newer(self.labels, labels, rows[good], self._size, 0)
        self.until = with_newer(self.until, until, rows[good], self._size, MOST)
        never, lanes = [], np.full(len(keys), -1)
        for one in made:
            kept = np.flatnonzero(slots[one.members] >= 0)
            members = one.members[kept]
            also = {name: (low[rows[members]], high[rows[members]]) for name, (low, high) in (bounds or {}).items()}
            never.append(rows[members[self._put(one, kept, slots[members].astype(np.int32), also)]])
            if self._lanes is not None:
                lanes[rows[members]] = one.lane.number
        self._index.planted(len(self._axes))
        self._compact()
        refused.sort(key=lambda one: one.row)
        return Added(refused, np.sort(np.concatenate([np.empty(0, np.int64), *never])), lanes)

    def remove(self, keys: pa.Array) -> int:
        """Forget queries; how many there were."""
        slots = self.find(keys)
        self._forget(slots)
        self._compact()
        return len(slots)

    def expire(self, before: int) -> int:
        """Forget queries that hold up to a time before this; how many there were."""
        if not len(self.until):
            return 0
        alive = (self._state[: self._size] & ALIVE).astype(bool)
        slots = np.flatnonzero(alive & (self.until < before))
        self._forget(slots)
        self._compact()
        return len(slots)

    def match(
        self,
        columns: Mapping[str, pa.Array] | Rows,
        n: int,
        cluster: int | None = None,
        *,
        counted: bool = True,
        probing: bool = False,
        normal: bool = True,
    ) -> tuple[Ints32, Ints32]:
        """The queries that each of n rows satisfies, as (row, slot) pairs, each once; ``counted`` as their matches.

        Who is only ``probing`` leaves no trace in any figure. Not ``normal``: without those that `meeting` answers.
        """
        rows_of = columns if isinstance(columns, Rows) else Rows(columns)
        rows, slots = self._in_boxes(rows_of, n, cluster, probing=probing, normal=normal)
        if len(self._boundless):
            others = self._over_all(rows_of, n, probing=probing)
            rows, slots = np.concatenate([rows, others[0]]), np.concatenate([slots, others[1]])
        if self._alone and (normal or not self._normal):  # all of those are exact by their errors
            found = self._alive_at(rows_of, self.regions.covering(rows_of.place))
            rows, slots = np.concatenate([rows, found.row]), np.concatenate([slots, found.slot])
        if counted and not probing:
            self.count(slots)
        return rows, slots

    def near(self, rows_of: Rows, readings: Readings, least: float | None, reach: float) -> Found | None:
        """The same of rows with normal errors, of queries for a region alone; None: there are none."""
        if not self._alone:
            return None
        return self._alive_at(rows_of, self.regions.around(readings, least, reach, turns=True))

    def _alive_at(self, rows_of: Rows, found: Found) -> Found:
        """Those of queries for a region alone that stand."""
        stands = (self._state[found.slot] & (ALIVE | _ALONE)) == (ALIVE | _ALONE)
        if len(self.until):
            stands &= self.until[found.slot] >= rows_of.keys(TIME)[found.row]
        return found if stands.all() else found.take(np.flatnonzero(stands))

    def _over_all(self, rows_of: Rows, n: int, *, probing: bool) -> tuple[Ints32, Ints32]:
        """Those of queries that bound nothing, whose conditions are asked of all rows."""
        slots = self._boundless[self.stand(self._boundless)]
        if not len(slots) or not n:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        if not probing:
            self._test(slots, n)
        return self._conditions.over_all(rows_of, n, slots)

    def _in_boxes(
        self, rows_of: Rows, n: int, cluster: int | None, *, probing: bool, normal: bool
    ) -> tuple[Ints32, Ints32]:
        """Those that are among the boxes: part by part, as most pairs of wide boxes may be no matches."""
        if not len(self._index):
            return np.empty(0, np.int32), np.empty(0, np.int32)
        points = np.empty((len(self._axes), n), np.int64)
        points[0] = rows_of.lane
        for name, axis in self._axes.items():
            if name is not None:
                points[axis] = rows_of.along(name)
        pairs = self._index.parts(points, self._living, cluster)
        parts = [self._sure(rows_of, *part, probing=probing, normal=normal) for part in pairs]
        if len(parts) == 1:
            return parts[0]
        rows, slots = together(parts)
        stays = self.stand(slots)  # some may have failed in a part after they matched in another
        return (rows, slots) if stays.all() else (rows[stays], slots[stays])

    def _sure(
        self, rows_of: Rows, rows: Ints32, slots: Ints32, *, probing: bool, normal: bool
    ) -> tuple[Ints32, Ints32]:
        """Those of the pairs of a row and a query in whose box it lies that match."""
        if not len(slots):
            return rows, slots
        if not normal:
            asked = np.flatnonzero(~self._state[slots] & _NORMAL)
            rows, slots = rows[asked], slots[asked]
        if self.regions:
            lies = self.regions.hold(slots, rows_of, rows)
            rows, slots = rows[lies], slots[lies]
        state = self._state[slots] if self._special else None
        if state is not None and (several := np.flatnonzero(state & _SEVERAL)).size:
            rows, slots = each_once(rows, slots, several)
            state = self._state[slots]
        if state is not None and (unsure := np.flatnonzero(~state & _EXACT)).size:
            stays = np.ones(len(rows), bool)
            if not probing:
                self._test(slots[unsure])
            stays[unsure] = self._conditions.hold(rows_of, rows[unsure], slots[unsure])
            rows, slots = rows[stays], slots[stays]
        return rows, slots

    def meeting(self, rows_of: Rows, n: int) -> Met:
        """The queries that n rows with normal errors may satisfy, by boxes and regions alone, with their boxes.

        The first axis of these is no column's; `axis_of` gives the others.
        """
        lows, highs = np.empty((2, len(self._axes), n), np.int64)
        for name, axis in self._axes.items():
            lows[axis], highs[axis] = (rows_of.lane, rows_of.lane) if name is None else rows_of.window(name)
        met = self._index.meeting(lows, highs, self._living)
        mine = np.flatnonzero(self._state[met.entries] & _NORMAL)
        return met.take(mine)

    def axis_of(self, name: str) -> int | None:
        """Which axis is that of a column; None where no query bounds it."""
        return self._axes.get(name)

    def count(self, slots: Ints32) -> None:
        """These queries have matched, as often as they are there."""
        np.add.at(self.counts, slots, np.uint32(1))

    def candidates(self, slots: Ints32) -> Ints:
        """Rows that came to the boxes of queries, or samples of such: what it costs to have them."""
        matches = self.counts[slots].astype(np.int64)
        tested = np.concatenate([self._tested, np.zeros(self._size - len(self._tested), np.uint32)])
        candidates: Ints = np.maximum(matches, tested[slots])
        return candidates

    def _test(self, slots: Ints32, times: int = 1) -> None:
        """The boxes of these queries do not say it all: their conditions are asked, each so often."""
        with self._lock:
            if len(self._tested) < self._size:
                self._tested = np.concatenate([self._tested, np.zeros(self._size - len(self._tested), np.uint32)])
            np.add.at(self._tested, slots, np.uint32(times))

    def find(self, keys: pa.Array) -> Ints:
        """The slots of the queries with these keys that stand."""
        return self._known.find(as_keys(keys, self.key_type), self._state)

    def described(self, slot: int) -> dict[str, Any]:
        """What is known of a query: its condition, how many boxes it has, whether they say it all, what came of it."""
        made = self._templates[self._template[slot]]
        return {
            "condition": self.texts(np.array([slot], np.int32))[0].as_py(),
            "columns": [column.name for column in made.columns],
            "boxes": made.boxes,
            "indexed": "as it is" if made.boxes <= MOST_BOXES else "by the hull of its boxes",
            "exact": bool(self._state[slot] & _EXACT),
            **self.regions.described(slot),
            **({"probability": "exact" if self._state[slot] & _NORMAL else "by points"} if self._normal else {}),
            "matches": int(self.counts[slot]),
            "candidates": int(self.candidates(np.array([slot], np.int32))[0]),
        }

    def boxes(self) -> tuple[list[str], Ints, Ints, Ints32]:
        """The axes there are, and the lows, highs (axes, n) and slots of all boxes of queries that may match."""
        lows, highs, entries = self._index.boxes(len(self._axes))
        own = np.flatnonzero(self._state[: self._size] & _ALONE).astype(np.int32)
        around = np.full((2, len(self._axes), len(own) + len(self._boundless)), NULL)
        around[1] = MOST
        for name, (low, high) in self.regions.bounds(own).items() if len(own) else ():
            around[0, self._axes[name], : len(own)], around[1, self._axes[name], : len(own)] = low, high
        lows, highs = np.hstack([lows, around[0]]), np.hstack([highs, around[1]])
        entries = np.concatenate([entries, own, self._boundless])
        alive = self.stand(entries)
        names = [name for name in self._axes if name is not None]
        at = [self._axes[name] for name in names]
        return names, lows[at][:, alive], highs[at][:, alive], entries[alive]

    def standing(self) -> Ints:
        """The lanes and labels of queries that stand, as (lane, label) pairs, each once."""
        alive = np.flatnonzero(self._state[: self._size] & ALIVE)
        lanes = [0 if self._lanes is None else self._lanes(made).number for made in self._templates]
        lane = np.array(lanes, np.int64)[self._template[alive]]
        pairs = np.unique(lane << 32 | self.labels[alive])
        return np.stack([pairs >> 32, pairs & 0xFFFFFFFF], axis=1)

    def busiest(self, n: int) -> Ints32:
        """The slots of the queries that stand and had the most candidates."""
        alive = np.flatnonzero(self._state[: self._size] & ALIVE).astype(np.int32)
        return alive[np.argsort(-self.candidates(alive), kind="stable")[:n]]

    def settle(self) -> None:
        """Build the index, now."""
        self.tidy(wait=True)
        self._index.settle(len(self._axes), self._living)

    def expect(self, rows: int) -> None:
        """So many rows are about to be matched, perhaps by several threads: what changes slots is made before."""
        self.tidy()
        self.regions.expect(rows)

    def stand(self, slots: Ints32) -> Flags:
        """Whether queries have not been removed since."""
        return (self._state[slots] & ALIVE).astype(bool)

    def tidy(self, *, wait: bool = False) -> None:
        """Take over what a thread has made ready, or is about to, if asked to ``wait``; slots change."""
        smaller = self._smaller
        if smaller is None or not (wait or smaller.columns.done()):
            return
        self._smaller = None
        texts, keys = smaller.columns.result()
        kept = np.concatenate([smaller.kept, np.arange(smaller.size, self._size, dtype=np.int32)])
        numbers = np.full(self._size, -1, np.int32)
        numbers[kept] = np.arange(len(kept), dtype=np.int32)
        self._index.renumber(numbers)
        self._known.renumber(keys, smaller.size, numbers)
        self._texts.replace(smaller.size, texts)
        self._state, self._template, self.counts = self._state[kept], self._template[kept], self.counts[kept]
        if len(self._tested):
            self._tested = np.concatenate([self._tested, np.zeros(self._size - len(self._tested), np.uint32)])[kept]
        self.labels = self.labels[kept] if len(self.labels) else self.labels
        self.until = self.until[kept] if len(self.until) else self.until
        self.regions.keep(kept)
        boundless = numbers[self._boundless]
        self._boundless = boundless[boundless >= 0]
        self._size = len(kept)
        self._forget_templates()

    # --- adding ---------------------------------------------------------------------------------------------------

    def _inside(self, made: Sequence[Boxed], rows: Ints, regions: GivenRegions | None) -> tuple[RegionSet, Ints]:
        """The regions of queries, given or of their conditions, and which of the texts each is of."""
        if regions is not None:
            members = np.array([i for i, row in enumerate(rows.tolist()) if regions.shapes[row] is not None], np.int64)
            return self.regions.read(*regions.take(rows[members])), members
        lifted = [one for one in made if self._templates[one.template].region is not None]
        found = [self._templates[one.template].regions(one.given, len(one.members)) for one in lifted]
        members = np.concatenate([np.empty(0, np.int64), *(one.members for one in lifted)])
        shapes, radii = [text for texts, _ in found for text in texts], [one for _, own in found for one in own]
        return self.regions.read(shapes, radii), members

    def _boxed(self, found: Texts, *, lifts: bool) -> tuple[list[Boxed], list[tuple[int, str]]]:
        """The queries by template, with their boxes; and those that cannot be used, with the reason.

        This is where conditions are read, checked and made into boxes. Whatever goes wrong with one is its own reason,
        and the others are taken in.
        """
        encoded = found.shapes.dictionary_encode()
        codes = np.asarray(encoded.indices)
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)), side="right").tolist()
        made: list[Boxed] = []
        wrong: list[tuple[int, str]] = []
        begin = 0
        for shape, end in zip(encoded.dictionary.to_pylist(), ends, strict=True):
            members, begin = order[begin:end].astype(np.int64), end
            plain = found.plain[members]
            single, members = members[~plain], members[plain]
            try:
                together, rest = self._of_shape(shape, found, members, lifts=lifts)
                made += together
            except Exception:  # noqa: BLE001 - each is read by itself, and reports its own error
                rest = members
            for i in np.concatenate([single, rest]).tolist():
                try:
                    made.append(self._of_one(found, i, lifts=lifts))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this query's
                    wrong.append((i, reason_of(error)))
        return made, wrong

    def _of_shape(self, shape: bytes, found: Texts, members: Ints, *, lifts: bool) -> tuple[list[Boxed], Ints]:
        """The queries of one shape that its template fits, and the others, which have to be read by themselves."""
        if not len(members):
            return [], members
        shape = shape if lifts else _APART_FROM + shape
        if shape not in self._shapes:
            i, place = int(members[0]), self._place if lifts else None
            made = template(found.texts[i].as_py(), found.literals(i), self._types, self._read, place)
            if made is not None:
                self._templates.append(made)
            self._shapes[shape] = None if made is None else len(self._templates) - 1
        number = self._shapes[shape]
        if number is None:
            return [], members
        made = self._templates[number]
        given = made.given(found, members)
        fit = np.logical_and.reduce([np.ones(len(members), bool), *(values.valid for values in given)])
        if not fit.all():
            given = [values.take(np.flatnonzero(fit)) for values in given]
        return [self._with_boxes(number, made, given, members[fit])] if fit.any() else [], members[~fit]

    def _of_one(self, found: Texts, i: int, *, lifts: bool) -> Boxed:
        """A query whose condition is its own template; `BadArgument` if it cannot be used."""
        condition = self._read(found.texts[i].as_py())
        condition.check(self._types)
        made = alone(condition, self._place if lifts else None)
        boxed = self._with_boxes(len(self._templates), made, [], np.array([i]))
        self._templates.append(made)
        return boxed

    def _with_boxes(self, number: int, made: Template, given: Sequence[Values], members: Ints) -> Boxed:
        lane = JoinGroup(0) if self._lanes is None else self._lanes(made)
        boxes = Boxes(made, given, len(members), self._types, lane.known, self._offers)
        for box in boxes.boxes:
            for column in box:
                self._axes.setdefault(column.name, len(self._axes))
        return Boxed(number, members, boxes, lane, given)

    def _put(self, one: Boxed, kept: Ints, slots: Ints32, also: Mapping[str, Range]) -> Ints:
        """Put those of these queries that are ``kept`` into the index; the places of those that no row can satisfy."""
        n = len(kept)
        if not n:
            return kept
        whole = n == len(one.members)
        possible = np.zeros(n, np.int64)
        bare, free = np.zeros((2, n), bool)
        exact = one.boxes.exact[kept]
        if one.boxes.boxes == [{}] and set(also) <= {PLACE_X, PLACE_Y, TIME}:
            bare = exact & (self.regions.of(slots) >= 0)
        for box in one.boxes.boxes:
            lows, highs = np.full((len(self._axes), n), NULL), np.full((len(self._axes), n), MOST)
            for column, (low, high) in box.items():
                at = self._axes[column.name]
                lows[at], highs[at] = (low, high) if whole else (low[kept], high[kept])
            for name, (low, high) in also.items():
                lows[self._axes[name]], highs[self._axes[name]] = low, high
            if self._lanes is not None:
                lows[0], highs[0] = one.lane.number, one.lane.number
            possible += (lows <= highs).all(axis=0)
            if len(one.boxes.boxes) == 1 and self._lanes is None:  # nothing is known of where they match
                free = ~exact & (lows == NULL).all(axis=0) & (highs == MOST).all(axis=0) & (self.regions.of(slots) < 0)
                self._boundless = np.concatenate([self._boundless, slots[free]])
            boxed = ~bare & ~free
            self._index.add(lows[:, boxed], highs[:, boxed], slots[boxed])
        bare &= possible > 0
        self._alone |= bool(bare.any())
        self._template[slots] = one.template
        self._state[slots] = ALIVE | np.where(exact, _EXACT, np.uint8(0)) | np.where(possible > 1, _SEVERAL, 0)
        self._state[slots] |= np.where(bare, _ALONE, np.uint8(0))
        if self._normal:
            planar = {self._place.x, self._place.y} if self._place is not None else set()
            normal = exact & is_product(one.boxes.boxes, kept, self.regions.are_cut(slots), self._normal, planar)
            self._state[slots] |= np.where(normal, _NORMAL, np.uint8(0))
            self.samples |= not normal.all()
            self.several |= bool((normal & (possible > 1)).any())
        self._special |= not exact.all() or bool((possible > 1).any())
        return np.flatnonzero(possible == 0)

    def _offers(self, axis: str) -> bool:
        """Whether there is room for an axis that is the order of two columns."""
        return axis in self._axes or len(self._axes) < _MOST_AXES

    def _grow(self, keys: pa.Array, texts: pa.Array) -> None:
        n = len(keys)
        wanted = self._size + n
        if wanted > len(self._state):
            room = max(wanted, len(self._state) * 5 // 4)
            for name in ("_state", "_template", "counts"):
                before = getattr(self, name)
                grown = np.zeros(room, before.dtype)
                grown[: self._size] = before[: self._size]
                setattr(self, name, grown)
        self._known.add(keys, self._size)
        self._texts.add(texts)
        self._size, self._alive = wanted, self._alive + n

    def _forget(self, slots: Ints) -> None:
        self._state[slots] &= ~ALIVE
        self._alive -= len(slots)

    def _compact(self) -> None:
        """Forget what was removed, once it is the greater part; the others answer while a thread is at it."""
        self.tidy()
        dead = self._size - self._alive
        if self._smaller is not None or dead < max(_LEAST_DEAD, self._alive):
            return
        kept = np.flatnonzero(self._state[: self._size] & ALIVE).astype(np.int32)
        columns = list(self._texts.parts), list(self._known.values.parts)
        self._smaller = Smaller(kept, self._size, self._index.pool.submit(taken, columns, kept))
        if self._size < _APART:
            self.tidy(wait=True)

    @property
    def _living(self) -> Flags | None:
        """Which slots are those of queries that stand; None: all."""
        return None if self._alive == self._size else (self._state[: self._size] & ALIVE).astype(bool)

    def _forget_templates(self) -> None:
        """Keep the templates that some query has; texts read by themselves bring one each."""
        counts = np.bincount(self._template[: self._size], minlength=len(self._templates))
        used = np.flatnonzero(counts)
        own = np.cumsum(counts > 0, dtype=np.int32) - 1
        self._template = own[self._template[: self._size]]
        numbers: dict[int | None, int | None] = {number: i for i, number in enumerate(used.tolist())} | {None: None}
        self._templates = [self._templates[number] for number in used.tolist()]
        self._shapes = {shape: numbers[number] for shape, number in self._shapes.items() if number in numbers}

    # --- the exact rest -------------------------------------------------------------------------------------------

    @property
    def _conditions(self) -> Conditions:
        return Conditions(self._templates, self._template, self.texts, self._fail)

    def _fail(self, slot: np.int32, error: Exception) -> None:
        """Forget a query that cannot be evaluated; the slots of the others stay as they are."""
        at = np.array([slot], np.int64)
        key, text = self.keys(at.astype(np.int32)), self.texts(at.astype(np.int32))
        with self._lock:
            if self._state[slot] & ALIVE:  # another thread may have found it out as well
                self._failed.append(Failed(key, text, reason_of(error)))
                self._forget(at)

    @property
    def has_failed(self) -> bool:
        """Whether queries were removed since the last call of `failed`."""
        return bool(self._failed)

    def failed(self) -> list[Failed]:
        """The queries that were removed because their conditions could not be evaluated, each reported once."""
        failed, self._failed = self._failed, []
        return failed
