"""The state of a call in process, so that another process can go on with it: all of it, or from which rows on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from appulse.engines.bucket import NEVER, Bucket, clock_numbers, set_clock
from appulse.engines.frozen import freeze, thaw
from appulse.engines.join.bucket import JoinBucket
from appulse.engines.local import Local
from appulse.engines.queries.call import LocalQueries
from appulse.model.columns import chunk
from appulse.model.times import to_micros
from appulse.windows.future import FutureGuard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.model.meaning import Meaning

__all__ = [
    "NEVER",
    "ROWS",
    "STATELESS",
    "WHOLE",
    "clocks",
    "described",
    "kind_of",
    "meaning_of",
    "needed_from",
    "newest_time",
    "restore",
    "set_clocks",
    "snapshot",
]

#: What is saved of a call: all that it holds, the rows that still matter, or nothing.
WHOLE, ROWS, STATELESS = "whole", "rows", "stateless"


def kind_of(engine: Any) -> str:
    """What is saved of an engine."""
    if isinstance(engine, LocalQueries):
        return STATELESS
    bucket = engine.bucket
    plain = isinstance(bucket, JoinBucket) and (bucket.numbering, bucket.unfilled, bucket.corrections) == (None,) * 3
    return ROWS if plain and not _has_format(bucket) else WHOLE


def _has_format(bucket: Bucket[Any]) -> bool:
    """Whether the state of a bucket has a format of its own, which later versions read."""
    return type(bucket).whole is not Bucket.whole


def meaning_of(engine: Any) -> str:
    """A short text that differs when what is asked does."""
    return str(engine.call.fingerprint()) if isinstance(engine, Local) else ""


def described(engine: Any) -> Meaning | None:
    """What is asked, in plain JSON; None where it does not matter."""
    return engine.call.meaning() if isinstance(engine, Local) else None


def clocks(engine: Any) -> dict[str, Any]:
    """How far the streams have come, as plain JSON."""
    if not isinstance(engine, Local):
        return {}
    return {
        "clock": clock_numbers(engine.bucket.clock),
        "complete": engine.bucket.complete,
        "guards": [asdict(guard) for guard in engine.arrivals.guards],
    }


def set_clocks(engine: Any, known: Mapping[str, Any]) -> None:
    """Take in what `clocks` gave."""
    if not isinstance(engine, Local):
        return
    set_clock(engine.bucket.clock, known["clock"])
    engine.bucket.complete = known["complete"]
    engine.arrivals.guards = [_guard(guard) for guard in known["guards"]]


def _guard(known: Mapping[str, Any]) -> FutureGuard:
    refused, longest = known["refused"], known.get("longest", ())  # which earlier versions did not save
    return FutureGuard(**{**known, "refused": tuple(refused) if refused else None, "longest": tuple(longest)})


def needed_from(engine: Any) -> int | None:
    """Rows before this time (microseconds) have no effect any more; None: that is not known yet."""
    bucket = engine.bucket
    if bucket.over is None:
        return None
    # Partners of rows that are held, and so whether these have met any, lie up to a window before them.
    over: int = bucket.over
    return over - 2 * int(max(bucket.call.plan.windows))


def newest_time(engine: Local[Any], rows: Mapping[str, pa.Table]) -> int | None:
    """The newest time (microseconds) of rows by stream; None where none has one."""
    found: list[int] = []
    for encoding in engine.call.encodings:
        table = rows.get(encoding.name)
        if table is None or not len(table) or encoding.time not in table.column_names:
            continue
        micros, null, strange = to_micros(chunk(table[encoding.time]), encoding.unit)
        known = micros[~(null | strange)].tolist()
        found += [max(known)] if known else []
    newest: int | None = max(found) if found else None
    return newest


def snapshot(engine: Local[Any]) -> list[bytes]:
    """All that a call holds."""
    return engine.bucket.snapshot() if _has_format(engine.bucket) else freeze(engine.bucket)


def restore(engine: Local[Any], blocks: Sequence[bytes]) -> None:
    """Take in a snapshot, before any row."""
    if _has_format(engine.bucket):
        engine.bucket.restore(blocks)
    else:
        thaw(engine.bucket, blocks)
