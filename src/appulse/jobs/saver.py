"""What a resident job saves, and how it goes on from there."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.connect.checkpoint import REMEDY, CheckpointFolder, Record
from appulse.connect.ledger import Addition, Ledger, numbers_of
from appulse.connect.source import Grows
from appulse.connect.writer import Epoch, Writer, clocks_of, pushes_of
from appulse.engines import saving
from appulse.errors import CheckpointError
from appulse.model.meaning import canonical, digest, listed_differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from appulse.api.by_hand import ByHand

__all__ = ["Saver"]

#: Bytes of the log after which all that is held is saved: at least so many, and so many times those of the state.
_LEAST_LOG, _TIMES = 4 << 20, 2
_LEDGER = "ledger"  # in an offset: what a record says of the file of names
_AGAIN = "Restore the job, or start with a new checkpoint."


class Saver:
    """Keeps the state of a call in a folder, by a log of its rows."""

    def __init__(self, folder: str, call: ByHand[Any], run: str) -> None:
        self.log = CheckpointFolder(folder)
        try:
            self.run: str = self.log.about({"format": 1, "run": run})["run"]
        except BaseException:
            self.log.close()
            raise
        self._call = call
        self._schemas: dict[str, str] = {}
        self._offsets: dict[str, Any] = {}
        self._ledgers: dict[str, Ledger] = {}  # of streams whose offsets grow
        self._numbers: Iterator[int] = iter(())  # of new files of these
        self._newest: dict[int, int] = {}  # the newest time among the rows of each epoch of the log
        self._state_bytes = 0
        self._meaning = ""
        self._described = False  # whether the folder has what the call means, in words

    def close(self) -> None:
        """Let others have the folder."""
        self.log.close()

    # --- while the job runs

    def begin(self) -> Epoch:
        """An epoch, with how far the streams have come before it."""
        return Epoch(keeps=True, before=self._before())

    def finish(self, epoch: Epoch, number: int, logged: int) -> None:
        """What is saved behind an epoch that has this number; ``logged`` are bytes of the log since the last state."""
        for rows, _ in epoch.pushes:
            self._know(rows)
        epoch.offsets = dict(self._offsets)
        epoch.kept, epoch.additions = self._kept()
        engine = self._call.engine
        if engine is None:
            return
        kind = saving.kind_of(engine)
        self._describe(engine)
        epoch.meaning = self._meaning = self._meaning or saving.meaning_of(engine)
        if kind == saving.STATELESS:
            epoch.needless = number
        elif kind == saving.ROWS:
            epoch.needless = self._needless(epoch, number)
        elif not epoch.drained and logged >= max(_LEAST_LOG, _TIMES * self._state_bytes):
            blocks = saving.snapshot(engine)
            self._state_bytes = sum(map(len, blocks))
            epoch.state = Record(number, {"before": self._before(), "offsets": epoch.kept}, blocks)

    def _describe(self, engine: Any) -> None:
        """Keep what the call means beside the log, once."""
        if not self._described and (asked := saving.described(engine)) is not None:
            if canonical(self.log.described()) != canonical(asked):
                self.log.describe(asked)
            self._described = True

    def taken(self, offsets: Mapping[str, Any]) -> None:
        """Rows up to these offsets have come."""
        self._offsets |= offsets

    def _kept(self) -> tuple[dict[str, Any], list[Addition]]:
        """What a record says of the offsets, and what comes to the files of those that grow."""
        kept, additions = dict(self._offsets), []
        for name, offset in self._offsets.items():
            if isinstance(offset, Grows):
                ledger = self._ledgers.setdefault(name, Ledger(self.log.path, self._numbers))
                mark, addition = ledger.add(offset)
                kept[name] = {**offset.about, _LEDGER: mark}
                additions += [] if addition is None else [addition]
        return kept, additions

    def _needless(self, epoch: Epoch, number: int) -> int | None:
        """Before which number rows of the log have no effect any more."""
        needed = None if epoch.before is None else epoch.before["needed"]
        engine: Any = self._call.engine
        times = [saving.newest_time(engine, rows) for rows, _ in epoch.pushes]
        self._newest[number] = max((time for time in times if time is not None), default=saving.NEVER)
        if needed is None:
            return None
        first = min(self._newest)
        while first < number and self._newest[first] < needed:
            del self._newest[first]
            first += 1
        return first

    def _before(self) -> dict[str, Any] | None:
        """How far the streams have come, with the columns that they have shown; None while pushes are held."""
        engine = self._call.engine
        if engine is None:
            return None
        kind = saving.kind_of(engine)
        known: dict[str, Any] = {"clocks": saving.clocks(engine), "schemas": dict(self._schemas)}
        known["needed"] = saving.needed_from(engine) if kind == saving.ROWS else None
        known["meaning"] = self._meaning = self._meaning or saving.meaning_of(engine)
        return known

    def _know(self, rows: Mapping[str, pa.Table]) -> None:
        for name, table in rows.items():
            if name not in self._schemas:
                self._schemas[name] = b64encode(table.schema.serialize().to_pybytes()).decode()

    # --- where a job begins

    def resume(self, writer: Callable[[int], Writer], again: Callable[..., Any]) -> tuple[Writer, dict[str, Any], bool]:
        """Bring the call to where the log ends, and write the last answers, unless that has been done.

        ``again`` takes the rows of a step, what could not be read, and its wall clock, and gives the step. Comes back
        with the writer, the offsets to go on from, and whether the streams have ended.
        """
        state, log = self.log.read()
        first = state or (log[0] if log else None)
        if first is None:
            self._numbers = numbers_of(self.log.path, ())
            return writer(0), {}, False
        self._check_streams([*([] if state is None else [state]), *log])
        if first.head["before"] is not None:
            self._restore(first.head["before"], None if state is None else state.blobs)
        if state is not None:
            self._offsets = dict(state.head["offsets"])
        drained, offsets = False, self._loaded((log[-1] if log else first).head["offsets"])
        made = writer(first.number + 1 if not log else log[-1].number + 1)
        for record in log:
            epoch = Epoch(keeps=True, before=record.head["before"])
            for rows, unreadable, clock in pushes_of(record):
                self._know(rows)
                epoch.add(again(rows, unreadable, clock))
            if drained := record.head["drained"]:
                epoch.add(again(None, [], clocks_of(record)[-1]))
            self._offsets = dict(record.head["offsets"])
            if (engine := self._call.engine) is not None and saving.kind_of(engine) == saving.ROWS:
                self._needless(epoch, record.number)
            self._check(record.head["meaning"])
            if record is log[-1]:
                made.write_again(record.number, epoch)
        if self._call.engine is not None:
            self._describe(self._call.engine)
        return made, offsets, drained

    def _loaded(self, offsets: Mapping[str, Any]) -> dict[str, Any]:
        """Offsets to go on from, with the sets of those that grow."""
        marks = {name: one[_LEDGER] for name, one in offsets.items() if isinstance(one, dict) and _LEDGER in one}
        self._numbers = numbers_of(self.log.path, [mark["file"] for mark in marks.values()])
        found = dict(offsets)
        for name, mark in marks.items():
            self._ledgers[name] = Ledger(self.log.path, self._numbers)
            found[name] = {**offsets[name], "names": self._ledgers[name].load(mark, REMEDY)}
        return found

    def _restore(self, before: Mapping[str, Any], blocks: list[bytes] | None) -> None:
        """Make the engine anew, and bring it to where it was before a record, or behind a state."""
        self._schemas = dict(before["schemas"])
        schemas = {name: pa.ipc.read_schema(pa.py_buffer(b64decode(one))) for name, one in self._schemas.items()}
        self._call.push(**{name: schema.empty_table() for name, schema in schemas.items()})
        self._call.take_rejects()  # those of queries and fences are written already
        engine: Any = self._call.engine
        if engine is None:
            raise CheckpointError(f"The checkpoint {self.log.path} is of streams with other columns. {_AGAIN}")
        self._check(before["meaning"])
        if blocks is not None:
            self._state_bytes = sum(map(len, blocks))
            saving.restore(engine, blocks)
        saving.set_clocks(engine, before["clocks"])

    def _check(self, meaning: str) -> None:
        """Raise `CheckpointError` where the call does not mean what it meant."""
        engine = self._call.engine
        if engine is None or not meaning or (own := saving.meaning_of(engine)) == meaning:
            return
        kept, asked = self.log.described(), saving.described(engine)
        if kept is None or asked is None or digest(kept) != meaning:  # as earlier versions wrote it
            differing = f"  meaning: the checkpoint has {meaning}, the job asks for {own}"
        else:
            differing = listed_differences(kept, asked)
        raise CheckpointError(f"The checkpoint {self.log.path} belongs to another job:\n{differing}\n{_AGAIN}")

    def _check_streams(self, records: Sequence[Record]) -> None:
        """Raise `CheckpointError` where rows are of streams that the call does not have."""
        kept: dict[str, None] = {}
        for record in records:
            kept |= dict.fromkeys((record.head["before"] or {}).get("schemas", ()))
            kept |= dict.fromkeys(name for names, _ in record.head.get("steps", ()) for name in names)
        if kept.keys() - self._call.streams.keys():
            raise CheckpointError(
                f"The checkpoint {self.log.path} belongs to another job:\n  streams: the checkpoint has "
                f"{json.dumps(list(kept))}, the job asks for {json.dumps(list(self._call.streams))}\n{_AGAIN}"
            )
