"""Rows that withdraw others, in the bucket of an operator: which rows go, and which withdrawals find none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.spark.codec import pack_withdrawals, unpack_withdrawals
from appulse.model import defects as why
from appulse.model.changes import LEFT_OUT
from appulse.model.defects import reject_schema
from appulse.model.strings import decode
from appulse.model.times import from_micros
from appulse.operators.withdrawals import Ledger, Withdrawals, withdrawals

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence

    from appulse.engines.objects import ObjectsCall
    from appulse.kernels.arrays import Flags
    from appulse.model.objects import Objects
    from appulse.operators.numbering import Sequencer

    Held = Sequence[tuple[int, Objects]]  # rows by stream

#: Of a log: withdrawals that wait.
WAITING = b"w"


class Corrections:
    """The ledger of a call's rows, and what it makes of withdrawals step by step.

    ``windows`` are those of time, in microseconds; None: windows go by rows.
    """

    def __init__(self, call: ObjectsCall, windows: Sequence[int] | None, counts: Counter[str]) -> None:
        self._call, self._windows, self._counts = call, windows, counts
        self.ledger = Ledger(len(call.encodings), call.keys, call.order)
        self.newest_lapsed: int | None = None  # of the last `lapse`

    @staticmethod
    def of(call: ObjectsCall, windows: Sequence[int] | None, counts: Counter[str]) -> Corrections | None:
        """None: no rows of the call are withdrawn."""
        return Corrections(call, windows, counts) if call.corrected else None

    def settle(
        self,
        came: Held,
        asked: Iterable[tuple[int, Objects]],
        before: int | None,
        held: Callable[[int, Objects], Flags],
        waiting: Held = (),
    ) -> tuple[Held, Held]:
        """Of the rows that came those that stay, and of those that stood the rows that are withdrawn.

        Rows before ``before`` were late in this step; rows that stood have to be ``held`` yet. Rows that are
        ``waiting`` since earlier steps are among those that stay.
        """
        stay, gone = self.ledger.settle(came, self._wanted(asked, before), held, waiting)
        lost = sum(len(rows) for _, rows in (*waiting, *came)) - sum(len(rows) for _, rows in stay)
        self._counts["withdrawn"] += lost + sum(len(rows) for _, rows in gone)
        return stay, gone

    def ask(self, asked: Iterable[tuple[int, Objects]], before: int | None) -> None:
        """Take in withdrawals where the operator itself holds all rows that may be meant."""
        for stream, wanted in self._wanted(asked, before):
            self.ledger.wait(stream, wanted)

    def stands_of(self, stream: int, held: Sequence[Objects], came: Sequence[Objects]) -> list[Flags] | None:
        """Which rows stand, of those that the operator holds, part by part, and of those that came; None: all."""
        if not self.ledger.waiting():
            self.ledger.have_left(stream)
            return None
        stands = self.ledger.stands_of(stream, held, came)
        self._counts["withdrawn"] += sum(int((~mask).sum()) for mask in stands)
        return stands

    def _wanted(self, asked: Iterable[tuple[int, Objects]], before: int | None) -> list[tuple[int, Withdrawals]]:
        wanted = []
        for i, rows in asked:
            assert rows.change is not None  # noqa: S101 - else they withdraw nothing
            left, own = rows.change == LEFT_OUT, rows
            if left.any():
                self.ledger.leave_out(i, rows.filter(left))
                own = rows.filter(~left)
            wanted.append((i, withdrawals(own, self._call.keys(i, own), self._unsure(i, own, before))))
        return wanted

    def settle_waiting(
        self, numbering: Sequencer, came: Held, asked: Iterable[tuple[int, Objects]], before: int | None
    ) -> Held:
        """Of the rows that wait to be numbered, those that came among them, the ones that stay wait on.

        Returns the rows that stood and are withdrawn.
        """
        waiting = numbering.waiting()
        fresh = {id(rows) for _, rows in came}
        earlier = [(stream, rows) for stream, rows in waiting if id(rows) not in fresh]
        new = [(stream, rows) for stream, rows in waiting if id(rows) in fresh]
        stay, gone = self.settle(new, asked, before, numbering.holds, earlier)
        numbering.keep_waiting(stay)
        return gone

    def lapse(self, before: int) -> list[pa.Table]:
        """Withdrawals of rows that can come no more, as rejects; those whose row has left are counted."""
        rejects = []
        lapsed = self.ledger.lapse(before)
        self.newest_lapsed = max((int(asked.time.max()) for _, asked in lapsed), default=None)
        for stream, asked in lapsed:
            never = asked.filter(~asked.unsure)  # others may have had a row
            self._counts["not_held"] += len(asked) - len(never)
            if len(never):
                rejects.append(self._refused(stream, never))
        return rejects

    def blocks(self) -> list[bytes]:
        """The withdrawals that wait, and rows that were left out, for a log."""
        known = (*self.ledger.waiting(), *self.ledger.left_out())
        return [WAITING + pack_withdrawals(rows, stream) for stream, rows in known]

    def recall(self, blocks: Iterable[bytes]) -> None:
        """Take in what `blocks` gave."""
        for block in blocks:
            self.ledger.wait(*unpack_withdrawals(block[1:]))

    def _unsure(self, stream: int, rows: Objects, before: int | None) -> Flags:
        """Whether a row may have come and left again."""
        if self._call.arrival:
            return np.ones(len(rows), bool)
        if before is None:
            return np.zeros(len(rows), bool)
        window = 0 if self._windows is None else self._windows[stream]
        unsure: Flags = rows.time + window < before
        return unsure

    def _refused(self, stream: int, asked: Withdrawals) -> pa.Table:
        encoding, n = self._call.encodings[stream], len(asked)
        return pa.table(
            {
                "stream": [encoding.name] * n,
                "key": decode(asked.key, encoding.key_type),
                "time": from_micros(asked.time, encoding.time_type, encoding.unit),
                "reason": [why.NO_SUCH_ROW] * n,
                "detail": ["no row of this key and time came, a condition left it out, or it was withdrawn before"] * n,
                "values": ["{}"] * n,
            },
            schema=reject_schema(encoding.key_type, encoding.time_type),
        )
