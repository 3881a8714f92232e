"""Pushes of a few exact points, by a short way: one kernel reads, judges, joins and keeps them.

What such a push costs is mostly how many calls it makes. Whatever is out of the ordinary (a bad row, one that is late
or from the future, an index to be built anew) goes the general way, which finds everything as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.few_points import LEAST, MOST, MOVES, NEVER, NEWEST, N
from appulse.operators.few_points import FEW, serves

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from appulse.engines.arriving import Arrivals
    from appulse.engines.join.bucket import JoinBucket
    from appulse.kernels.arrays import Ints
    from appulse.model.encoding import Seen
    from appulse.model.few import FewRows

_WORD = 8  # bytes
_NOWHERE = np.zeros(2, np.int64)


class ShortPushes:
    """The short way of a call, which has one."""

    def __init__(self, bucket: JoinBucket, arrivals: Arrivals) -> None:
        self._bucket, self._arrivals = bucket, arrivals

    @staticmethod
    def of(bucket: JoinBucket, arrivals: Arrivals) -> ShortPushes | None:
        """None where pairs are not of exact points, or more is asked for than pairs."""
        call, held = bucket.call, (bucket.numbering, bucket.unfilled, bucket.corrections, bucket.pairs)
        few = serves(call.plan) and held == (None, None, None, None) and not (call.arrival or call.chained)
        return ShortPushes(bucket, arrivals) if few and call.few_pairs is not None else None

    def push(self, tables: Mapping[str, pa.Table]) -> pa.Table | None:
        """The answers that rows complete; None where they have to go the general way."""
        bucket, operator = self._bucket, self._bucket.operator
        call, guards, late = bucket.call, self._arrivals.guards, bucket.late_before(None)
        asked, places, many, held, d, text = [], [], [0, 0], [], 0, call.few_pairs.text if call.few_pairs else 0
        for i, encoding in enumerate(call.encodings):
            place, read = _NOWHERE, (0, 1, 0, 0)
            table = tables.get(encoding.name)
            if table is not None:
                found = _located(encoding.seen, table)
                if found is None:
                    return None
                few, message, place = found
                held.append(message)  # whose memory stays
                if few.text != text:
                    return None
                many[i], d = len(table), len(few.model.columns)
                read = many[i], few.per, message.address, message.size // _WORD
            guard, span = guards[i], call.plan.windows[i]
            asked.append((*read, NEVER if late is None else late, *guard.limits, *guard.known, span, text, 0, 0, 0))
            places.append(place)
        if not operator.has_room(d, many, texts=text > 0):
            return None
        numbers = np.array(asked)
        bucket.begin()
        operator.output = bucket.output
        pairs = operator.push_few(numbers, places, many)
        if pairs is None:
            return None
        for i, row in enumerate(numbers.tolist()):
            if row[N]:
                bucket.clock.reach(i, row[LEAST], row[MOST])
                guards[i] = guards[i].after(row[NEWEST : MOVES + 1], row[LEAST])
        self._arrivals.count(sum(many), 0, bucket.clock)
        return bucket.keep_few(sum(many), pairs)


def _located(seen: Seen, table: pa.Table) -> tuple[FewRows, pa.Buffer, Ints] | None:
    """How a few rows are read, their message, and where in it their columns are; None where they are not as before."""
    few = seen.few if 0 < len(table) <= FEW and seen.short == table.schema else None
    found = None if few is None else few.message(table)
    return None if few is None or found is None else (few, *found)
