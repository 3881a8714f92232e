"""The bucket of `fence_events` over sets of fences that change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.fences.call import fence_table
from appulse.engines.fences.looking import LookingBucket
from appulse.engines.fences.terms import judged
from appulse.engines.fences.versions import changed, first_version, known_version
from appulse.engines.multi_queries.bucket import CHANGES
from appulse.engines.spark.codec import pack, unpack
from appulse.engines.spark.tables import packed, unpacked
from appulse.engines.withdrawing import WAITING
from appulse.model.batch import field_names
from appulse.model.codec import from_columns, pack_columns, unpack_columns
from appulse.model.objects import Objects
from appulse.operators.changing_fences import ChangingFences
from appulse.operators.fences import Visits, whole_visits
from appulse.operators.numbering import in_canonical_order
from appulse.operators.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from appulse.engines.bucket import Blobs
    from appulse.engines.fences.bucket import FenceBucket
    from appulse.engines.fences.call import FenceCall
    from appulse.engines.fences.versions import FenceVersion
    from appulse.kernels.arrays import Ints
    from appulse.model.regions import RegionSet

# Blocks of a snapshot: visits, sets of fences, and the names of fences that were removed.
_HELD, _SETS, _GONE = b"h", b"v", b"g"
_WORD = "visits"


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

    def change(self, table: pa.Table, block: bytes | None = None) -> pa.Table:
        """Take in changes of the fences, in order, which came as a block; those that cannot be used."""
        self.version, rejects = changed(self.version, table, self.call, block)
        self._gone |= self.version.gone
        return rejects

    def waits(self, stream: int) -> list[Waiting[Objects]]:
        """Readings whose fences are known, and those that came."""
        return [*(rows for _, rows in self.known), *super().waits(stream)]

    def receive(self, given: Blobs) -> None:
        """Take in changes of the fences, which count for the readings that came with them."""
        self._changes = given[CHANGES]
        refused = [self.change(unpacked(block[9:]), block) for block in self._changes]
        if self.reports:
            self.rejected += refused

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
                version.expect(len(whole))
                released.append((version.standing, *own))
        self.known = [one for one in self.known if len(one[1])]
        settled = all(version is self.version for version, _ in self.known)
        current = self.version.standing
        happened = self.operator.push(released, current, self.complete, self._last, settled=settled)
        number, place = np.unique(happened.fence, return_inverse=True)
        names = self._names([*versions, self.version], number)
        table = fence_table(happened._replace(fence=place), self.call, names)
        self._tidy()
        self.output.add(len(table))
        return [table] if len(table) else []

    def _names(self, versions: list[FenceVersion], number: Ints) -> pa.Array:
        """The names of fences by number: of those that stand in some set, and of those that were removed."""
        labels, of = [pa.array([], self.call.query_type)], np.full(len(number), -1)
        for version in versions:
            place = version.standing.places(number)
            own = np.flatnonzero((place >= 0) & (of < 0))
            of[own] = sum(map(len, labels)) + np.arange(len(own))
            labels.append(version.names(place[own]))
        gone = np.flatnonzero(of < 0)
        of[gone] = sum(map(len, labels)) + np.arange(len(gone))
        labels.append(pa.array([self._gone[i].as_py() for i in number[gone].tolist()], self.call.query_type))
        return pa.concat_arrays(labels).take(pa.array(of))

    def _tidy(self) -> None:
        """Forget the names of fences that nobody will hear of."""
        if self._gone and all(version is self.version for version, _ in self.known):
            visits = self.operator.outside(self.version.standing)
            heard = set() if visits is None else set(visits.fence.tolist())
            self._gone = {number: name for number, name in self._gone.items() if number in heard}

    # --- the log

    def blocks(self, batches: Iterable[tuple[int, Objects]]) -> list[bytes]:
        """Rows and changes as blocks."""
        return [*self._changes, *super().blocks(batches)]

    def hold_again(self, given: Blobs) -> None:
        """Take in changes of the fences, and readings that came with them."""
        for block in given[CHANGES]:
            self.change(unpacked(block[9:]), block)
        super().hold_again(given)

    def whole(self) -> tuple[list[int], Mapping[str, NDArray[Any]], list[bytes]]:
        """Sets of fences, the readings that wait under each, and visits that have not ended."""
        sets = [*self.known]
        if not sets or sets[-1][0] is not self.version:
            sets.append((self.version, Waiting()))
        blocks = []
        for i, (version, rows) in enumerate(sets):
            digest = np.frombuffer(version.digest, np.uint8)
            columns = {"table": version.rows(), "number": version.number[version.places], "digest": digest}
            blocks.append(_SETS + pack_columns("fences", columns, (i, version.known), compression="zstd"))
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
        (self.complete,) = numbers
        self.known = []
        for block in given[_SETS]:
            columns, (_, known) = unpack_columns("fences", block[len(_SETS) :], copied=True)
            digest = columns["digest"].tobytes()
            if digest != self.version.digest:
                self.version = known_version(columns["table"], columns["number"], known, digest, self.call)
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

    def follow(self, before: FenceBucket) -> None:
        """Go on from what was held as long as nothing had changed."""
        self.clock, self.complete = before.clock, before.complete
        self.corrections, self.counts = before.corrections, before.counts
        if len(before.waiting[0]):
            self.known = [(self.version, before.waiting[0])]
        self.operator.visits = before.operator.visits
