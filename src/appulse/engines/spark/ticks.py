"""What stages that wait for ticks to be complete have in common: which rows come in time, and what is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.engines.spark.codec import unpack
from appulse.engines.spark.state import NO_TIMER
from appulse.engines.spark.tile_join import checked_late
from appulse.operators.numbering import END
from appulse.windows.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from appulse.engines.call import AnyCall, Call
    from appulse.model.objects import Objects

#: No time at all.
NEVER = -(1 << 62)


def bucket_clock(call: AnyCall) -> Clock:
    """The clock of a bucket of groups."""
    clock = Clock.of(call)
    if call.grouped:
        # A stream that sends nothing here may well do so elsewhere: who is silent, Spark's watermark tells.
        clock.idle_after = [None] * len(call.lateness)
    return clock


def admitted(
    blobs: list[bytes], call: Call, clock: Clock, limit: int | None
) -> tuple[list[tuple[int, Objects]], list[pa.Table]]:
    """Rows that came in time, and rejects for the others: those behind a tick that was sent on, or could be."""
    known = [time for time in (limit, clock.frontier) if time is not None]
    before = max(known) if known and not call.arrival else None
    batches, late = [], []
    for blob in blobs:
        stream, _, objects = unpack(blob)
        if before is not None and (objects.time < before).any():
            behind = np.flatnonzero(objects.time < before)
            late.append(checked_late(call, stream, objects, behind, before))
            objects = objects.take(np.flatnonzero(objects.time >= before))
        if len(objects):
            batches.append((stream, objects))
    for stream, objects in batches:
        clock.see(stream, objects)
    return batches, late


def complete_before(call: AnyCall, clock: Clock, limit: int | None, *, ended: bool) -> int:
    """Ticks before this are complete."""
    if call.arrival:
        return END
    if ended:
        now = clock.now
        clock.frontier = None if now is None else now + 1  # whoever comes after the end is late
        return END
    known = [time for time in (clock.tick(), limit) if time is not None]
    if not known:
        return NEVER
    # Rows behind what Spark's watermark let go are late from now on, here too.
    clock.frontier = max(known)
    return max(known)


def armed(due: int | None, timer: int, limit: int | None, arm: Callable[[int], None]) -> int:
    """The timer, set so that what is due at a time is not forgotten."""
    if due is None:
        return timer
    wanted = max(due // 1000 + 1, 1 if limit is None else limit // 1000 + 1)
    if timer == NO_TIMER or wanted < timer:
        arm(wanted)
        return wanted
    return timer


def clock_arrays(clock: Clock) -> list[int]:
    """The clock as numbers."""
    return [NEVER if time is None else time for time in (clock.first, clock.frontier, *clock.newest)]


def set_clock(clock: Clock, numbers: list[int]) -> None:
    """Take in what `clock_arrays` gave."""
    clock.first, clock.frontier, *clock.newest = (None if time == NEVER else time for time in numbers)
