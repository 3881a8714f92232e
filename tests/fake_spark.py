"""The stateful stage of the Spark engine without Spark: tiles and state, workers that forget, attempts that fail.

Everything of appulse that runs in Spark's workers runs here too; only Spark is played.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.engines.call import JoinCall, frontier
from appulse.engines.spark.engine import blocks_of_task
from appulse.engines.spark.state import Cache, TileState
from appulse.engines.spark.tile_join import ANSWERS, METRICS, REJECTS, TileJoin, read_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from appulse.engines.spark.tiles import TilePlan


class FakeValue:
    """A value state of one key."""

    def __init__(self, store: dict[str, Any]) -> None:
        self._store = store

    def exists(self) -> bool:
        return "version" in self._store

    def get(self) -> Any:
        return self._store.get("version")

    def update(self, value: Any) -> None:
        self._store["version"] = value


class FakeMap:
    """A map state of one key."""

    def __init__(self, store: dict[str, Any]) -> None:
        self._entries = store.setdefault("log", {})

    def getValue(self, key: Any) -> Any:  # noqa: N802 - Spark's name
        return self._entries.get(key)

    def containsKey(self, key: Any) -> bool:  # noqa: N802 - Spark's name
        return key in self._entries

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802 - Spark's name
        self._entries[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802 - Spark's name
        self._entries.pop(key, None)


class FakeHandle:
    """What a stateful processor gets from Spark, for one key."""

    def __init__(self, store: dict[str, Any]) -> None:
        self._store = store

    def getValueState(self, name: str, schema: str) -> FakeValue:  # noqa: N802, ARG002 - Spark's name
        return FakeValue(self._store)

    def getMapState(self, name: str, key: str, value: str) -> FakeMap:  # noqa: N802, ARG002 - Spark's name
        return FakeMap(self._store)


@dataclass
class FakeSpark:
    """A streaming query over micro-batches of tables by stream name."""

    call: JoinCall
    plan: TilePlan
    random: Random
    workers: int = 2
    stores: dict[int, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    timers: dict[int, int] = field(default_factory=dict)
    bytes_read: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = list(range(self.plan.numbers))
        self.join = TileJoin(self.call, self.plan, tuple(self.keys))
        self.caches = [Cache(1 << 30) for _ in range(self.workers)]
        self.newest: list[int | None] = [None] * len(self.call.encodings)

    def batch(self, tables: Mapping[str, pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
        """Answers and rejects of one micro-batch."""
        limit = frontier(self.newest, self.call.lateness)
        blocks = self._shuffled(tables)
        answers: list[pa.Table] = []
        rejects: list[pa.Table] = []
        for key, blobs in sorted(blocks.items()):
            for blob in self._attempts(key, blobs, limit):
                tag = blob[:1]
                if tag != METRICS:
                    (answers if tag == ANSWERS else rejects).append(read_table(blob))
                    assert tag in (ANSWERS, REJECTS)
        self._fire(limit)
        return answers, rejects

    def _shuffled(self, tables: Mapping[str, pa.Table]) -> dict[int, list[bytes]]:
        """Blocks by tile, of tasks that got some of the rows each, in no order."""
        blocks: dict[int, list[bytes]] = defaultdict(list)
        for s, encoding in enumerate(self.call.encodings):
            table = tables.get(encoding.name)
            if table is None:
                continue
            cut = self.random.randint(0, len(table))
            for part in (table.slice(0, cut), table.slice(cut)):
                for batch in blocks_of_task(part.to_batches(), self.call, self.plan, self.keys, s):
                    for key, block, time in zip(*[batch.column(i).to_pylist() for i in range(3)], strict=True):
                        blocks[key].append(block)
                        self._see(s, block, time)
        for blobs in blocks.values():
            self.random.shuffle(blobs)
        return blocks

    def _see(self, stream: int, block: bytes, time: Any) -> None:
        if block[:1] == REJECTS:
            return
        micros = int(pa.scalar(time, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())
        known = self.newest[stream]
        self.newest[stream] = micros if known is None else max(known, micros)

    def _attempts(self, key: int, blobs: Sequence[bytes], limit: int | None) -> list[bytes]:
        """The output of the attempt that counts; one may fail before it, having changed nothing but caches."""
        if self.random.random() < 0.2:
            self._run(key, blobs, limit, copy.deepcopy(self.stores[key]), {})
        return self._run(key, blobs, limit, self.stores[key], self.timers)

    def _run(
        self, key: int, blobs: Sequence[bytes], limit: int | None, store: dict[str, Any], timers: dict[int, int]
    ) -> list[bytes]:
        return self.join.answer(key, list(blobs), limit, self._state(store), lambda at: timers.__setitem__(key, at))

    def _state(self, store: dict[str, Any]) -> TileState:
        cache = self.random.choice(self.caches)
        if self.random.random() < 0.15:
            cache.clear()
        handle: Any = FakeHandle(store)
        return TileState(handle, "plan", cache)

    def _fire(self, limit: int | None) -> None:
        if limit is None:
            return
        for key, at in list(self.timers.items()):
            if at <= limit // 1000:
                del self.timers[key]
                state = self._state(self.stores[key])
                self.join.expire(key, limit, state, partial(self.timers.__setitem__, key))
