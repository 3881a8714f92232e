"""Sets of fences that change: each is what changes made of the one before, and both hold on.

Fences are kept in the order in which they came, whatever has become of them since; a set says which of them stand. So a
change adds to what is there, and once most fences do not stand any more, what does is copied.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from os import urandom
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.fences.call import check_fences, never_entered
from appulse.engines.fences.terms import TermSet, both_terms, check_terms, terms_of
from appulse.engines.queries.call import ADD, CHANGE, REMOVE, changes_of, refused_queries, unknown_change
from appulse.model import defects as why
from appulse.model.columns import plain_values
from appulse.model.geometries import geometries_of
from appulse.model.growing_regions import GrowingRegions
from appulse.model.regions import NO_REGIONS, QUERY, REGION, RegionSet, radii_of, regions_of, taken
from appulse.operators.changing_fences import Standing
from appulse.queries.slots import GrowingTable, SlotsByKey, as_keys, last_of_each

if TYPE_CHECKING:
    from appulse.engines.fences.call import FenceCall
    from appulse.kernels.arrays import ByteArray, Ints
    from appulse.model.regions import Regions

_DIGEST = 16
# Sets that a worker process keeps for its buckets.
_MOST_KEPT = 4
_KEPT: OrderedDict[bytes, tuple[FenceVersion, pa.Table]] = OrderedDict()
# From so many fences on that do not stand, those that do are copied once they are fewer.
_MANY_GONE = 1_000


class FenceStore:
    """All fences that came: their regions, names and rows, by place."""

    def __init__(self, regions: GrowingRegions, names: pa.Array, rows: pa.Table) -> None:
        self.regions = regions
        self.names = SlotsByKey(names.type)
        self.names.add(names, 0)
        self.rows = GrowingTable(rows)

    def __len__(self) -> int:
        return len(self.regions)

    def add(self, regions: Regions, names: pa.Array, rows: pa.Table) -> None:
        """Take in more."""
        self.names.add(names, len(self))
        self.regions.add(regions)
        self.rows.add(rows)


@dataclass(frozen=True, eq=False)
class FenceVersion:
    """A set of fences: those of a store that ``stand``, each with the number that it keeps when it changes place.

    ``gone`` are the numbers and names of fences that were removed by the changes that made it.
    """

    store: FenceStore
    stands: ByteArray
    number: Ints
    known: int
    digest: bytes
    terms: TermSet | None = None
    gone: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def standing(self) -> Standing:
        """What the operator is given."""
        search = self.store.regions.search
        regions = RegionSet(self.store.regions.arrays, np.arange(len(self.stands)))
        regions.found_by = search._replace(grid=search.grid._replace(stands=self.stands))
        return Standing(regions, self.number, self.stands, self.known, None if self.terms is None else self.terms.terms)

    def expect(self, readings: int) -> None:
        """So many readings are about to be looked up."""
        self.store.regions.expect(readings)

    @property
    def places(self) -> Ints:
        """Those that stand."""
        return np.flatnonzero(self.stands)

    def names(self, places: Ints) -> pa.Array:
        """The names of fences by place."""
        return self.store.names.values.take(places)

    def rows(self) -> pa.Table:
        """The rows that say what stands."""
        return self.store.rows.take(self.places)

    def places_of(self, names: pa.Array) -> Ints:
        """Where the fence of each name is that stands; -1: there is none."""
        room = np.zeros(len(self.store), np.uint8)
        room[: len(self.stands)] = self.stands
        return self.store.names.slots(names, room)

    def without(self, places: Ints) -> FenceVersion:
        """The set without some fences."""
        stands = self.stands.copy()
        stands[places] = 0
        return replace(self, stands=stands)

    def with_more(
        self, regions: Regions, number: Ints, names: pa.Array, rows: pa.Table, terms: TermSet | None
    ) -> FenceVersion:
        """The set with more fences."""
        whole = self
        if len(self.store) != len(self.stands) or _MANY_GONE + 2 * len(self.places) < len(self.stands):
            whole = self._copied()
        whole.store.add(regions, names, rows)
        return replace(
            whole,
            stands=np.append(whole.stands, np.ones(len(number), np.uint8)),
            number=np.append(whole.number, number),
            known=max(self.known, int(number.max(initial=-1)) + 1),
            terms=both_terms(whole.terms, len(whole.stands), terms, len(number)),
        )

    def _copied(self) -> FenceVersion:
        """The same with a store of its own: one that others have added to is theirs."""
        at = self.places
        store = FenceStore(GrowingRegions(taken(self.store.regions.arrays, at)), self.names(at), self.rows())
        terms = None if self.terms is None else self.terms.take(at)
        return replace(self, store=store, stands=np.ones(len(at), np.uint8), number=self.number[at], terms=terms)


def version_of(
    store: FenceStore, number: Ints, known: int, rows: pa.Table, digest: bytes, call: FenceCall
) -> FenceVersion:
    """A set of all fences of a store, with their terms from the rows that say what they are."""
    terms, _ = terms_of(rows, call.encoding.unit, call.types)
    return FenceVersion(store, np.ones(len(store), np.uint8), number, known, digest, terms)


def first_version(call: FenceCall) -> FenceVersion:
    """The set that a call begins with."""
    held = call.fences.get()
    number = np.arange(len(held.names), dtype=np.int64)
    given = call.given_fences
    rows = given if len(held.regions.rows) == len(given) else given.take(pa.array(held.regions.rows))
    digest = blake2b(call.fingerprint().encode(), digest_size=_DIGEST).digest()
    store = FenceStore(held.regions.growing(), held.names.cast(call.query_type), rows)
    return version_of(store, number, len(number), rows, digest, call)


def check_changes(schema: pa.Schema) -> None:
    """Raise `BadArgument` unless these are the columns of changes of fences."""
    check_fences(schema, (QUERY,) if CHANGE in schema.names else (QUERY, REGION), " and change")


def changed(
    version: FenceVersion, table: pa.Table, call: FenceCall, block: bytes | None = None
) -> tuple[FenceVersion, pa.Table]:
    """The set after changes, one after the other, and what cannot be used. What raises has changed nothing.

    Changes that came to several buckets as a ``block`` are worked out once by a worker process.
    """
    if block is None:
        return _changed(replace(version, gone={}, digest=urandom(_DIGEST)), table, call)
    digest = blake2b(version.digest + block, digest_size=_DIGEST).digest()
    if digest not in _KEPT:
        _KEPT[digest] = _changed(replace(version, gone={}, digest=digest), table, call)
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    return _KEPT[digest]


def known_version(table: pa.Table, number: Ints, known: int, digest: bytes, call: FenceCall) -> FenceVersion:
    """A set again: that of this worker process if it has it."""
    if digest not in _KEPT:
        regions = NO_REGIONS
        if len(table):
            radii = radii_of(table, "fences")
            regions = regions_of(geometries_of(table), radii, call.plan.earth, digested=False, rasterised=False)
        store = FenceStore(regions.growing(), as_keys(plain_values(table[QUERY]), call.query_type), table)
        _KEPT[digest] = version_of(store, number, known, table, digest, call), call.reject_schema.empty_table()
    return _KEPT[digest][0]


def _changed(version: FenceVersion, table: pa.Table, call: FenceCall) -> tuple[FenceVersion, pa.Table]:
    check_changes(table.schema)
    check_terms(table.schema, call.time_type, call.types)
    rejects = [call.reject_schema.empty_table()]
    for kind, part in changes_of(table):
        names = as_keys(plain_values(part[QUERY]), call.query_type)
        null = np.asarray(names.is_null(nan_is_null=True))
        shown = part.drop_columns([REGION]) if REGION in part.column_names else part
        if kind == ADD and REGION in part.column_names:
            version, refused = _with_added(version, part, names, shown, call)
            rejects += refused
            continue
        if kind == REMOVE:
            wrong = [(int(i), "query is null") for i in np.flatnonzero(null)]
            version = _with_removed(version, names.filter(pa.array(~null)))
        else:
            wrong = unknown_change(part) if kind != ADD else [(i, "region is null") for i in range(len(part))]
        rejects.append(refused_queries(shown, wrong, call.reject_schema, why.BAD_REGION))
    return version, pa.concat_tables(rejects)


def _with_removed(version: FenceVersion, names: pa.Array) -> FenceVersion:
    places = version.places_of(names)
    places = np.unique(places[places >= 0])
    gone = dict(zip(version.number[places].tolist(), version.names(places), strict=True)) if len(places) else {}
    return replace(version.without(places), gone=version.gone | gone)


def _with_added(
    version: FenceVersion, part: pa.Table, names: pa.Array, shown: pa.Table, call: FenceCall
) -> tuple[FenceVersion, list[pa.Table]]:
    """The set with fences that are new or have changed place, and what cannot be used."""
    null = np.asarray(names.is_null(nan_is_null=True))
    found = regions_of(geometries_of(part), radii_of(part, "fences"), call.plan.earth, digested=False, rasterised=False)
    terms, odd = terms_of(part, call.encoding.unit, call.types)
    wrong = [(int(i), "query is null") for i in np.flatnonzero(null)]
    wrong += [(one.row, one.why) for one in found.bad if not null[one.row]]
    odd = [(row, reason) for row, reason in odd if not null[row]]
    rejects = [
        refused_queries(shown, sorted(wrong), call.reject_schema, why.BAD_REGION),
        refused_queries(shown, odd, call.reject_schema),
    ]
    good = np.flatnonzero(~null[found.rows] & ~np.isin(found.rows, [row for row, _ in odd]))
    # Of several of one name the last stands.
    good = good[last_of_each(names.take(pa.array(found.rows[good])))]
    at = found.rows[good]
    fresh = found.arrays if len(good) == len(found.rows) else taken(found.arrays, good)
    own = names.take(pa.array(at))
    places = version.places_of(own)
    number = np.where(places >= 0, version.number[places], -1) if len(version.number) else np.full(len(at), -1)
    number[number < 0] = version.known + np.arange(int((number < 0).sum()))
    rejects.append(never_entered(fresh, at, shown, call))
    rows = part if len(at) == len(part) else part.take(pa.array(at))
    rows = rows.drop_columns([CHANGE]) if CHANGE in rows.column_names else rows
    version = version.without(places[places >= 0])
    return version.with_more(fresh, number, own, rows, None if terms is None else terms.take(at)), rejects
