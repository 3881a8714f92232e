"""State of one key on Spark, a tile or a bucket: a log of deltas, and a worker's cache of what they add up to.

A micro-batch writes what arrived, never the window. A delta carries a digest of itself and of the one before it. The
cache is trusted only if its version and digest are those of the log: a failed attempt leaves a version that never was,
another worker may have gone on in the meantime. Where deltas expire in no order, a *whole* delta now and then holds
all there is, and the log begins anew with it.

What is written must not depend on the attempt that writes it: after a crash Spark may join the snapshot of an attempt
that never was with the change logs of the one that counted.
"""

from __future__ import annotations

import os
import struct
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from appulse.engines.spark.deltas import HEAD, NO_DIGEST, REMEDY, RecentDeltas, is_intact, read_file, read_head, signed
from appulse.errors import CheckpointError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

# A value of a map state over about 1 MB costs more per MB.
_PART = 1 << 20
_CACHE_BYTES = int(os.environ.get("APPULSE_CACHE_BYTES", str(4 << 30)))
# Queries end without a word to their workers.
_FORGET_AFTER = 900.0
NO_TIMER = -1


@dataclass
class Cached:
    """An operator as of a version of the log, and what the log holds."""

    operator: Any
    version: int
    digest: bytes
    live: deque[tuple[int, int, int, int]] = field(default_factory=deque)  # (version, parts, newest time, bytes)
    settled: int = 0  # up to when what time brings about has been reported

    @property
    def logged(self) -> int:
        """Bytes in the log."""
        return sum(entry[3] for entry in self.live)

    def ahead(self, first: int, settled: int) -> bool:
        """Whether an attempt that failed forgot or reported more than what stands: the version does not show it."""
        return self.settled > settled or bool(self.live and self.live[0][0] > first)


class Cache:
    """Operators of this worker, least recently used first out once they hold too many bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[tuple[str, ...], tuple[Cached, int, float]] = OrderedDict()

    def take(self, key: tuple[str, ...]) -> Cached | None:
        """Hand over the entry; it is gone until put back, so a failure in between cannot leave half a change."""
        entry = self._entries.pop(key, None)
        return None if entry is None else entry[0]

    def put(self, key: tuple[str, ...], cached: Cached) -> None:
        now = time.monotonic()
        self._entries[key] = cached, cached.operator.nbytes, now
        held = sum(size for _, size, _ in self._entries.values())
        for other, (_, size, used) in list(self._entries.items())[:-1]:
            if held <= self.limit and now - used < _FORGET_AFTER:
                break
            del self._entries[other]
            held -= size

    def clear(self) -> None:
        self._entries.clear()


CACHE = Cache(_CACHE_BYTES)


class TileState:
    """The state of the tile at hand; one instance per task, used for its tiles in turn."""

    def __init__(
        self,
        handle: StatefulProcessorHandle,
        fingerprint: str,
        cache: Cache | None = None,
        recent: RecentDeltas | None = None,
    ) -> None:
        self._cache = CACHE if cache is None else cache
        self._version = handle.getValueState(
            "version", "version long, first long, digest binary, plan string, timer long, settled long"
        )
        self._log = handle.getMapState("log", "version long, part int", "delta binary")
        self._call = self._fingerprint = fingerprint
        self._recent = recent
        self.bytes_read = 0

    def serves(self, plan: str) -> None:
        """Tell the plan of the key at hand: what it wrote under another is none of its business."""
        self._fingerprint = f"{self._call}-{plan}"

    def load(self, tile: int, fresh: Callable[[], Any], apply: Callable[[Any, bytes], None]) -> tuple[Cached, int]:
        """The operator as of the log, and the time of the armed timer.

        ``fresh`` makes an empty operator, ``apply`` takes a delta into one.
        """
        self.bytes_read = 0
        key = self._cache_key(tile)
        stored = self._version.get() if self._version.exists() else None
        cached = self._cache.take(key)
        if stored is None:
            return Cached(fresh(), 0, NO_DIGEST), NO_TIMER
        version, first, digest, plan, timer, settled = stored
        if plan != self._fingerprint:
            raise CheckpointError(
                f"The checkpoint was written by a job with plan {plan}, this job has plan {self._fingerprint}: "
                "streams, models, epsilon, probability, window, partitions or tiles differ. "
                "Start it with a new checkpoint, or restore the old job."
            )
        if cached is not None and cached.ahead(first, settled):
            cached = None
        while cached is not None and cached.live and cached.live[0][0] < first:
            cached.live.popleft()
        if cached is not None and (cached.version, cached.digest) == (version, bytes(digest)):
            cached.settled = settled  # time may have moved on elsewhere, without rows and so without a version
            return cached, timer
        near = {} if self._recent is None else self._recent.chain(key, version, bytes(digest), first - 1)
        behind = cached is not None and first - 1 <= cached.version < version
        if cached is None or not behind or not self._catch_up(cached, version, near, fresh, apply):
            cached = Cached(fresh(), first - 1, NO_DIGEST)
            self._catch_up(cached, version, near, fresh, apply, check=False)
        cached.settled = settled
        if cached.digest != bytes(digest):
            raise StateError(f"The deltas of a tile do not follow upon each other up to version {version}. {REMEDY}")
        return cached, timer

    def save(
        self, tile: int, cached: Cached, blocks: Sequence[bytes], newest: int | None, timer: int, *, whole: bool = False
    ) -> int:
        """Write the blocks that arrived as the next version (none: the version stays), and keep the operator.

        ``newest`` is the latest time among them. With ``whole`` they are all that the operator holds. Returns the
        bytes written.
        """
        written = 0
        if newest is not None:
            if whole:
                self._forget(cached, len(cached.live))
            written = self._append(tile, cached, blocks, newest, whole=whole)
        first = cached.live[0][0] if cached.live else cached.version + 1
        self._version.update((cached.version, first, cached.digest, self._fingerprint, timer, cached.settled))
        self._cache.put(self._cache_key(tile), cached)
        return written

    def keep(self, tile: int, cached: Cached) -> None:
        """Nothing happened that a log has to know: keep the operator."""
        self._cache.put(self._cache_key(tile), cached)

    def _append(self, tile: int, cached: Cached, blocks: Sequence[bytes], newest: int, *, whole: bool) -> int:
        version = cached.version + 1
        payload = b"".join(piece for block in blocks for piece in (struct.pack("<q", len(block)), block))
        parts = max(1, -(-len(payload) // _PART))
        head, digest = signed(payload, parts, newest, cached.digest, whole=whole)
        view = memoryview(payload)  # what is large is not copied more often than it has to be
        for part in range(parts):
            chunk = view[part * _PART : (part + 1) * _PART]
            self._log.updateValue((version, part), (b"".join((b"" if part else head, chunk)),))
        if self._recent is not None:
            self._recent.put(self._cache_key(tile), version, head, payload)
        cached.live.append((version, parts, newest, len(payload)))
        cached.version, cached.digest = version, digest
        return len(payload)

    def _cache_key(self, tile: int) -> tuple[str, ...]:
        from pyspark import TaskContext  # here: kernels are compiled without Spark, too

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return (query or "", self._fingerprint, str(tile))

    def trim(self, cached: Cached, before: int) -> None:
        """Remove deltas from the front of the log all of whose rows are older than ``before``.

        The last one stays: it carries the digest of the version.
        """
        while len(cached.live) > 1 and cached.live[0][2] < before:
            self._forget(cached, 1)

    def _forget(self, cached: Cached, deltas: int) -> None:
        for _ in range(deltas):
            version, parts, *_ = cached.live.popleft()
            for part in range(parts):
                self._log.removeKey((version, part))

    def _catch_up(
        self,
        cached: Cached,
        version: int,
        near: Mapping[int, Path],
        fresh: Callable[[], Any],
        apply: Callable[[Any, bytes], None],
        *,
        check: bool = True,
    ) -> bool:
        """Replay the deltas up to ``version``; False, before any change, if they are not of the same history.

        Those that are ``near`` need not be read from the log.
        """
        for following in range(cached.version + 1, version + 1):
            kept = read_file(near[following]) if following in near else None
            first = self._read(following, 0) if kept is None else kept[0]
            head = first[:HEAD]
            delta = read_head(head, following)
            if check and not delta.whole and delta.before != cached.digest:
                return False
            payload = self._payload(following, first, head, delta.parts) if kept is None else kept[1]
            if delta.whole:
                cached.operator = fresh()
                cached.live.clear()
            apply(cached.operator, payload)
            cached.live.append((following, delta.parts, delta.newest, len(payload)))
            cached.version, cached.digest, check = following, delta.digest, True
        return True

    def _payload(self, version: int, first: bytes, head: bytes, parts: int) -> bytes:
        rest = [self._read(version, part) for part in range(1, parts)]
        payload = b"".join((memoryview(first)[HEAD:], *rest))
        if not is_intact(head, payload):
            raise StateError(f"Delta {version} of a tile fails its checksum: truncated or corrupt. {REMEDY}")
        return payload

    def _read(self, version: int, part: int) -> bytes:
        value = self._log.getValue((version, part))
        if value is None:
            raise StateError(f"Delta {version} of a tile lacks part {part}. {REMEDY}")
        delta = bytes(value[0])
        self.bytes_read += len(delta)
        return delta


def outgrown(cached: Cached, blocks: Sequence[bytes], slack: int) -> bool:
    """Whether a log with these blocks more is to begin anew: told by the log alone, so that every attempt says it.

    Its first delta is the last whole one; the log may be twice as long, and a ``slack`` more.
    """
    return bool(cached.live) and cached.logged + sum(map(len, blocks)) > 2 * cached.live[0][3] + slack


def blocks_of(payload: bytes) -> list[bytes]:
    """The blocks of a delta."""
    blocks, at = [], 0
    while at < len(payload):
        (size,) = struct.unpack_from("<q", payload, at)
        blocks.append(payload[at + 8 : at + 8 + size])
        if len(blocks[-1]) != size:
            raise StateError(f"A delta of a tile ends within a block. {REMEDY}")
        at += 8 + size
    return blocks
