"""Sets of fences that change, and the bucket of `fence_events` over them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.fences.call import check_fences, fence_table, never_entered
from appulse.engines.fences.looking import LookingBucket
from appulse.engines.fences.terms import check_terms, judged, terms_of
from appulse.engines.multi_queries.bucket import CHANGES
from appulse.engines.queries.call import ADD, CHANGE, REMOVE, changes_of, refused_queries, unknown_change
from appulse.engines.spark.codec import pack, unpack
from appulse.engines.spark.tables import packed, unpacked
from appulse.engines.withdrawing import WAITING
from appulse.model import defects as why
from appulse.model.batch import field_names
from appulse.model.codec import from_columns, pack_columns, unpack_columns
from appulse.model.columns import plain_values
from appulse.model.geometries import geometries_of
from appulse.model.objects import Objects
from appulse.model.regions import (
    NO_REGIONS,
    QUERY,
    REGION,
    RegionSet,
    index_of,
    joined,
    radii_of,
    regions_of,
    taken,
)
from appulse.model.strings import encode
from appulse.operators.changing_fences import ChangingFences, Standing
from appulse.operators.fences import Visits, whole_visits
from appulse.operators.numbering import in_canonical_order
from appulse.operators.waiting import Waiting
from appulse.queries.slots import as_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.engines.fences.bucket import FenceBucket
    from appulse.engines.fences.call import FenceCall
    from appulse.engines.fences.terms import TermSet
    from appulse.model.regions import Regions

# Blocks of a snapshot: visits, sets of fences, and the names of fences that were removed.
_HELD, _SETS, _GONE = b"h", b"v", b"g"
_WORD = "visits"
# Sets that a worker process keeps for its buckets.
_MOST_KEPT = 4
_KEPT: OrderedDict[bytes, tuple[FenceVersion, pa.Table]] = OrderedDict()


@dataclass(frozen=True, eq=False)
class FenceVersion:
    """A set of fences, with their names and the rows that say what they are, in the order of the regions."""

    standing: Standing
    names: pa.Array
    table: pa.Table
    digest: bytes
    terms: TermSet | None = None


def first_version(call: FenceCall) -> FenceVersion:
    """The set that a call begins with."""
    held = call.fences.get()
    number = np.arange(len(held.names), dtype=np.int64)
    table = call.given_fences.take(pa.array(held.regions.rows))
    digest = blake2b(call.fingerprint().encode(), digest_size=16).digest()
    return _version(held.regions, number, len(number), held.names, table, digest, call)


def _version(
    regions: RegionSet,
    number: NDArray[np.int64],
    known: int,
    names: pa.Array,
    table: pa.Table,
    digest: bytes,
    call: FenceCall,
) -> FenceVersion:
    terms, _ = terms_of(table, call.encoding.unit, call.types)
    standing = Standing(regions, number, known, None if terms is None else terms.terms)
    return FenceVersion(standing, names, table, digest, terms)


def check_changes(schema: pa.Schema) -> None:
    """Raise `BadArgument` unless these are the columns of changes of fences."""
    check_fences(schema, (QUERY,) if CHANGE in schema.names else (QUERY, REGION), " and change")


def changed(
    version: FenceVersion, table: pa.Table, call: FenceCall, digest: bytes | None = None
) -> tuple[FenceVersion, pa.Table]:
    """The set after changes, one after the other, and what cannot be used. What raises has changed nothing.

    ``digest`` is that of the set after them, where it is known.
    """
    check_changes(table.schema)
    check_terms(table.schema, call.time_type, call.types)
    standing, names, rows = version.standing, version.names, version.table
    arrays, number, known = standing.regions.arrays, standing.number, standing.known
    rejects: list[pa.Table] = []
    for kind, part in changes_of(table):
        given = as_keys(plain_values(part[QUERY]), call.query_type)
        null = np.asarray(given.is_null())
        fresh: tuple[Regions, NDArray[np.int64]] | None = None
        wrong, odd = [(int(i), "query is null") for i in np.flatnonzero(null)], []
        if kind == ADD and REGION in part.column_names:
            found = regions_of(geometries_of(part), radii_of(part, "fences"), call.plan.earth, digested=False)
            wrong += [(one.row, one.why) for one in found.bad if not null[one.row]]
            odd = [(row, why) for row, why in terms_of(part, call.encoding.unit, call.types)[1] if not null[row]]
            good = np.flatnonzero(~null[found.rows] & ~np.isin(found.rows, [row for row, _ in odd]))
            fresh = taken(found.arrays, good), found.rows[good]
        elif kind != REMOVE:
            wrong = unknown_change(part) if kind != ADD else [(i, "region is null") for i in range(len(part))]
        shown = part.drop_columns([REGION]) if REGION in part.column_names else part
        rejects.append(refused_queries(shown, sorted(wrong), call.reject_schema, why.BAD_REGION))
        rejects.append(refused_queries(shown, odd, call.reject_schema))
        bad = {i for i, _ in wrong}
        at = fresh[1] if fresh is not None else np.array([i for i in range(len(part)) if i not in bad], np.int64)
        if fresh is None and kind != REMOVE:
            continue
        before = {name: i for i, name in enumerate(encode(names).to_list())} if len(names) else {}
        touched = encode(given.take(pa.array(at))).to_list() if len(at) else []
        kept = np.setdiff1d(np.arange(len(names)), [before[name] for name in touched if name in before])
        last = {name: i for i, name in enumerate(touched)}  # of several of one name the last stands
        chosen = np.array(sorted(last.values()), np.int64)
        parts, numbers = [taken(arrays, kept)], [number[kept]]
        labels, tables = [names.take(pa.array(kept))], [rows.take(pa.array(kept))]
        if fresh is not None:
            own = [number[before[touched[i]]] if touched[i] in before else -1 for i in chosen.tolist()]
            numbered = np.array(own, np.int64)
            numbered[numbered < 0] = known + np.arange(int((numbered < 0).sum()))
            known = max(known, int(numbered.max(initial=-1)) + 1)
            some = taken(fresh[0], chosen)
            rejects.append(never_entered(some, at[chosen], shown, call))
            parts.append(some)
            numbers.append(numbered)
            labels.append(given.take(pa.array(at[chosen])))
            usable = part.take(pa.array(at[chosen]))
            tables.append(usable.drop_columns([CHANGE]) if CHANGE in usable.column_names else usable)
        arrays, number = joined(parts), np.concatenate(numbers)
        names = pa.concat_arrays([one.cast(call.query_type) for one in labels])
        rows = pa.concat_tables([one for one in tables if len(one)] or tables[:1], promote_options="permissive")
    digest = _digest_after(version, table) if digest is None else digest
    regions = RegionSet(arrays, index_of(arrays), np.arange(len(names)), (), "")
    after = _version(regions, number, known, names, rows, digest, call)
    return after, pa.concat_tables([call.reject_schema.empty_table(), *rejects])


def _digest_after(version: FenceVersion, table: pa.Table) -> bytes:
    return blake2b(version.digest + packed(table), digest_size=16).digest()


def _kept(version: FenceVersion, table: pa.Table, call: FenceCall) -> tuple[FenceVersion, pa.Table]:
    """The same, worked out once by a worker process for all of its buckets."""
    key = _digest_after(version, table)
    if key not in _KEPT:
        _KEPT[key] = changed(version, table, call, key)
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    return _KEPT[key]


class ChangingFenceBucket(LookingBucket):
    """The state of some things. Of several buckets with the same changes, one ``reports`` what cannot be used."""

    call: FenceCall

    def __init__(self, call: FenceCall) -> None:
        super().__init__(call)
        self.operator = ChangingFences(call.plan)
        self.version = first_version(call)
        self.reports = True
        self.known: list[tuple[FenceVersion, Waiting[Objects]]] = []  # readings, by the fences that they came to
        self._changes: list[bytes] = []
        self._gone: dict[int, Any] = {}  # names of fences that were removed, and may still be heard of
        self._last: int | None = None

    def __len__(self) -> int:
        return sum(map(len, self.waits(0))) + len(self.operator)

    @property
    def nbytes(self) -> int:
        """Bytes held, without the fences: those are shared."""
        return sum(one.nbytes for one in self.waits(0)) + self.operator.nbytes

    @property
    def regions(self) -> RegionSet:
        """Those of the fences that stand."""
        return self.version.standing.regions

    @property
    def due(self) -> int | None:
        """The least time that ticks have to be complete beyond for anything to be answered."""
        times = [super().due, *(rows.due for _, rows in self.known), self.operator.due]
        return min((time for time in times if time is not None), default=None)

    def change(self, table: pa.Table) -> pa.Table:
        """Take in changes of the fences, in order; those that cannot be used."""
        before = self.version
        self.version, rejects = _kept(before, table, self.call)
        removed = np.flatnonzero(self.version.standing.places(before.standing.number) < 0)
        for at in removed.tolist():
            self._gone[int(before.standing.number[at])] = before.names[at]
        return rejects

    def waits(self, stream: int) -> list[Waiting[Objects]]:
        """Readings whose fences are known, and those that came."""
        return [*(rows for _, rows in self.known), *super().waits(stream)]

    def receive(self, given: Blobs) -> None:
        """Take in changes of the fences, which count for the readings that came with them."""
        self._changes = given[CHANGES]
        refused = [self.change(unpacked(block[9:])) for block in self._changes]
        if self.reports:
            self.rejected += refused

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """The answers of ticks that are complete now."""
        self._last = ended
        return super().advance(limit, ended)

    def answer(self, *, ended: bool) -> list[pa.Table]:  # noqa: ARG002 - ``_last`` says it
        """The events that follow from complete ticks."""
        for fresh in self.waiting[0].release():
            if not self.known or self.known[-1][0] is not self.version:
                self.known.append((self.version, Waiting()))
            self.known[-1][1].hold(fresh)
        versions = [version for version, _ in self.known]
        released = []
        for version, rows in self.known:
            if parts := rows.release(self.complete):
                call, whole = self.call, in_canonical_order(Objects.concat(parts))
                own = judged(whole, call.encoding, call.types, version.terms, carried=call.plan.carried)
                released.append((version.standing, *own))
        self.known = [one for one in self.known if len(one[1])]
        settled = all(version is self.version for version, _ in self.known)
        current = self.version.standing
        happened = self.operator.push(released, current, self.complete, self._last, settled=settled)
        number, names = self._names([*versions, self.version])
        happened = happened._replace(fence=np.searchsorted(number, happened.fence))
        table = fence_table(happened, self.call, names)
        self._tidy()
        self.output.add(len(table))
        return [table] if len(table) else []

    def _names(self, versions: list[FenceVersion]) -> tuple[NDArray[np.int64], pa.Array]:
        """The numbers of all fences there may be events of, in order, and their names."""
        once = {id(version): version for version in versions}.values()
        gone = np.array(list(self._gone), np.int64)
        number = np.concatenate([*(version.standing.number for version in once), gone])
        kind = self.call.query_type
        labels = [version.names.cast(kind) for version in once]
        names = pa.concat_arrays([*labels, pa.array([name.as_py() for name in self._gone.values()], kind)])
        number, first = np.unique(number, return_index=True)
        return number, names.take(pa.array(first))

    def _tidy(self) -> None:
        """Forget the names of fences that nobody will hear of."""
        if self._gone and all(version is self.version for version, _ in self.known):
            visits = self.operator.visits
            heard = set() if visits is None else set(visits.fence.tolist())
            self._gone = {number: name for number, name in self._gone.items() if number in heard}

    # --- the log

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        """All ticks before ``complete`` were there."""
        return [self.complete, self._last is not None, self._last or 0], {}

    def blocks(self, batches: Iterable[tuple[int, Objects]]) -> list[bytes]:
        """Rows and changes as blocks."""
        return [*self._changes, *super().blocks(batches)]

    def hold_again(self, given: Blobs) -> None:
        """Take in changes of the fences, and readings that came with them."""
        for block in given[CHANGES]:
            self.change(unpacked(block[9:]))
        super().hold_again(given)

    def again(self, numbers: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Take the same step; its answers are known."""
        ended, last = numbers
        self._last = last if ended else None
        self.answer(ended=bool(ended))

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Sets of fences, the readings that wait under each, and visits that have not ended."""
        sets = [*self.known]
        if not sets or sets[-1][0] is not self.version:
            sets.append((self.version, Waiting()))
        blocks = []
        for i, (version, rows) in enumerate(sets):
            digest = np.frombuffer(version.digest, np.uint8)
            columns = {"table": version.table, "number": version.standing.number, "digest": digest}
            blocks.append(_SETS + pack_columns("fences", columns, (i, version.standing.known), compression="zstd"))
            blocks += [pack(part, 0, i) for part in rows.parts]
        if self._gone:
            names = pa.array([name.as_py() for name in self._gone.values()], self.call.query_type)
            blocks.append(_GONE + packed(pa.table({"number": list(self._gone), "name": names})))
        visits = self.operator.visits
        if visits is not None and len(visits):
            columns = {name: getattr(visits, name) for name in field_names(Visits)}
            blocks.append(_HELD + pack_columns(_WORD, columns))
        if self.corrections is not None:
            blocks += self.corrections.blocks()
        return [self.complete], {}, blocks

    def resume(self, numbers: list[int], arrays: Mapping[str, NDArray[Any]], given: Blobs) -> None:  # noqa: ARG002
        """Go on from a snapshot."""
        (self.complete,) = numbers
        self.known = []
        for block in given[_SETS]:
            columns, (_, known) = unpack_columns("fences", block[len(_SETS) :], copied=True)
            self.version = self._version(columns["table"], columns["number"], known, columns["digest"].tobytes())
            self.known.append((self.version, Waiting()))
        for block in given[self.rows_tag]:
            _, i, rows = unpack(block)
            self.known[i][1].hold(rows)
        self.known = [one for one in self.known if len(one[1])]
        if self.corrections is not None:
            self.corrections.recall(given[WAITING])
        for block in given[_GONE]:
            table = unpacked(block[len(_GONE) :])
            self._gone = dict(zip(table["number"].to_pylist(), table["name"].combine_chunks(), strict=True))
        for block in given[_HELD]:
            columns, _ = unpack_columns(_WORD, block[len(_HELD) :], copied=True)
            self.operator.visits = whole_visits(from_columns(Visits, columns))

    def _version(self, table: pa.Table, number: NDArray[np.int64], known: int, digest: bytes) -> FenceVersion:
        """A set again: that of this worker process if it has it."""
        if digest == self.version.digest:
            return self.version
        if digest not in _KEPT:
            regions = NO_REGIONS
            if len(table):
                regions = regions_of(
                    geometries_of(table), radii_of(table, "fences"), self.call.plan.earth, digested=False
                )
            names = as_keys(plain_values(table[QUERY]), self.call.query_type)
            version = _version(regions, number, known, names, table, digest, self.call)
            _KEPT[digest] = version, self.call.reject_schema.empty_table()
        return _KEPT[digest][0]

    def follow(self, before: FenceBucket) -> None:
        """Go on from what was held as long as nothing had changed."""
        self.clock, self.complete = before.clock, before.complete
        self.corrections, self.counts = before.corrections, before.counts
        if len(before.waiting[0]):
            self.known = [(self.version, before.waiting[0])]
        self.operator.visits = before.operator.visits
