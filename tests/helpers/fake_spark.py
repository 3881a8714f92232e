"""The stateful stages of the Spark engine without Spark: keys and state, workers that forget, attempts that fail.

Everything of appulse that runs in Spark's workers runs here too; only Spark is played.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from appulse.engines.spark.aggregate_stage import AggregateStage
from appulse.engines.spark.inputs import blocks_of_task, bucket_keys
from appulse.engines.spark.number_stage import NumberStage
from appulse.engines.spark.readings_stage import ReadingsStage
from appulse.engines.spark.sensors import blocks_of_readings
from appulse.engines.spark.state import Cache, TileState
from appulse.engines.spark.tile_join import ANSWERS, METRICS, REJECTS, TileJoin, end_mark, read_table
from appulse.engines.spark.tiling import Tiling, Version
from appulse.engines.spark.window_queries import blocks_of_rows
from appulse.engines.spark.window_stage import WindowStage, changes_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from appulse.engines.aggregate import AggregateCall
    from appulse.engines.call import AnyCall, Call, JoinCall
    from appulse.engines.readings import ReadingsCall
    from appulse.engines.spark.sensors import Routing
    from appulse.engines.spark.tiles import TilePlan
    from appulse.engines.window_call import WindowCall


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
class FakeQuery:
    """A streaming query over micro-batches of tables by stream name."""

    call: AnyCall
    plan: TilePlan
    random: Random
    workers: int = 2
    stores: dict[Any, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    timers: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tiling = Tiling((Version(self.plan),), 0)
        self.caches = [Cache(1 << 30) for _ in range(self.workers)]
        self.newest: list[int | None] = [None] * len(self.call.lateness)

    def batch(self, tables: Mapping[str, pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
        """Answers and rejects of one micro-batch."""
        limit = self._watermark()
        return self._answered(self._run_stages(self._shuffled(tables), limit))

    def end(self) -> tuple[list[pa.Table], list[pa.Table]]:
        """Answers and rejects of the end of the streams."""
        newest = max((time for time in self.newest if time is not None), default=0)
        keys = bucket_keys(self.call, self.tiling) if self.call.bucketed else self.tiling.keys
        return self._answered(self._run_stages({key: [end_mark(newest)] for key in keys}, self._watermark()))

    def _run_stages(self, blocks: Mapping[int, Sequence[bytes]], limit: int | None) -> list[bytes]:
        """What the last stage puts out."""
        raise NotImplementedError

    @staticmethod
    def _answered(out: Sequence[bytes]) -> tuple[list[pa.Table], list[pa.Table]]:
        assert {blob[:1] for blob in out} <= {ANSWERS, METRICS, REJECTS}
        tables = {tag: [read_table(blob) for blob in out if blob[:1] == tag] for tag in (ANSWERS, REJECTS)}
        return tables[ANSWERS], tables[REJECTS]

    def _watermark(self) -> int | None:
        """The watermark of the batches before, as Spark has it."""
        told = [time for time in self.newest if time is not None]
        if len(told) < len(self.newest):
            return None
        least = min(time // 1000 - -(-late // 1000) for time, late in zip(told, self.call.lateness, strict=True))
        return least * 1000 if least > 0 else None

    def _shuffled(self, tables: Mapping[str, pa.Table]) -> dict[int, list[bytes]]:
        """Blocks by key, of tasks that got some of the rows each, in no order."""
        blocks: dict[int, list[bytes]] = defaultdict(list)
        for s, name in enumerate(self._streams()):
            table = tables.get(name)
            if table is None:
                continue
            cut = self.random.randint(0, len(table))
            for part in (table.slice(0, cut), table.slice(cut)):
                for batch in self._task(part, s):
                    for key, block, time in zip(*[batch.column(i).to_pylist() for i in range(3)], strict=True):
                        blocks[key].append(block)
                        self._see(s, block, time)
        for blobs in blocks.values():
            self.random.shuffle(blobs)
        return blocks

    def _streams(self) -> list[str]:
        return [encoding.name for encoding in cast("Call", self.call).encodings]

    def _task(self, part: pa.Table, stream: int) -> Iterator[pa.RecordBatch]:
        return blocks_of_task(part.to_batches(), cast("Call", self.call), self.tiling, stream)

    def _see(self, stream: int, block: bytes, time: Any) -> None:
        if block[:1] == REJECTS:
            return
        micros = int(pa.scalar(time, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())
        known = self.newest[stream]
        self.newest[stream] = micros if known is None else max(known, micros)

    def _attempts(self, stage: Any, kind: str, key: int, blobs: Sequence[bytes], limit: int | None) -> list[Any]:
        """The output of the attempt that counts; one may fail before it, having changed nothing but caches.

        Whatever a worker knew, and in whatever order blocks came, it has to write the same.
        """
        place = kind, key
        before = copy.deepcopy(self.stores[place])
        if self.random.random() < 0.2:
            stage(key, list(blobs), limit, self._state(kind, copy.deepcopy(self.stores[place])), lambda _: None)
        arm = partial(self.timers.__setitem__, place)
        out: list[Any] = stage(key, list(blobs), limit, self._state(kind, self.stores[place]), arm)
        shuffled = self.random.sample(list(blobs), len(blobs))
        handle: Any = FakeHandle(before)
        stage(key, shuffled, limit, TileState(handle, kind, Cache(1 << 30)), lambda _: None)
        assert before == self.stores[place], "another attempt would have written something else"
        return out

    def _state(self, kind: str, store: dict[str, Any]) -> TileState:
        cache = self.random.choice(self.caches)
        if self.random.random() < 0.15:
            cache.clear()
        handle: Any = FakeHandle(store)
        return TileState(handle, kind, cache)

    def _fire(self, stage: Any, kind: str, limit: int | None) -> list[Any]:
        out: list[Any] = []
        for place, at in list(self.timers.items()):
            if place[0] == kind and limit is not None and at <= limit // 1000:
                del self.timers[place]
                arm = partial(self.timers.__setitem__, place)
                out += stage(place[1], limit, self._state(kind, self.stores[place]), arm)
        return out


@dataclass
class FakeSpark(FakeQuery):
    """A join."""

    call: JoinCall

    def __post_init__(self) -> None:
        super().__post_init__()
        self._take(Tiling.of(self.plan, self.call.plan))

    def _take(self, tiling: Tiling) -> None:
        self.tiling = tiling
        self.join = TileJoin(self.call, tiling)
        self.numbers = NumberStage(self.call, tiling)

    def replan(self, plan: TilePlan) -> None:
        """A new start from the checkpoint, with a new version of the plan."""
        newest = max((time for time in self.newest if time is not None), default=0)
        self._take(self.tiling.followed_by(plan, newest + 1))

    def _run_stages(self, blocks: Mapping[int, Sequence[bytes]], limit: int | None) -> list[bytes]:
        if self.call.plan.rule is not None:
            sent: dict[int, list[bytes]] = defaultdict(list)
            for key, blobs in blocks.items():
                for tile, blob in self._attempts(self.numbers.answer, "bucket", key, blobs, limit):
                    sent[tile].append(blob)
            for tile, blob in self._fire(self.numbers.wake, "bucket", limit):
                sent[tile].append(blob)
            blocks = sent
        out: list[bytes] = []
        for key, given in sorted(blocks.items()):
            blobs = list(given)
            self.random.shuffle(blobs)
            out += self._attempts(self.join.answer, "tile", key, blobs, limit)
        return out + self._fire(self.join.expire, "tile", limit)


@dataclass
class FakeAggregate(FakeQuery):
    """Aggregates of windows."""

    call: AggregateCall

    def _run_stages(self, blocks: Mapping[int, Sequence[bytes]], limit: int | None) -> list[bytes]:
        stage = AggregateStage(self.call)
        out: list[bytes] = []
        for key, given in sorted(blocks.items()):
            out += self._attempts(stage.answer, "bucket", key, given, limit)
        return out + self._fire(stage.expire, "bucket", limit)


@dataclass
class FakeReadings(FakeQuery):
    """An operator over readings."""

    call: ReadingsCall
    routing: Routing = field(kw_only=True)

    def _streams(self) -> list[str]:
        return ["readings"]

    def _task(self, part: pa.Table, stream: int) -> Iterator[pa.RecordBatch]:
        assert stream == 0
        return blocks_of_readings(part.to_batches(), self.call, self.routing, bucket_keys(self.call, self.tiling))

    def _run_stages(self, blocks: Mapping[int, Sequence[bytes]], limit: int | None) -> list[bytes]:
        stage = ReadingsStage(self.call)
        out: list[bytes] = []
        for key, given in sorted(blocks.items()):
            out += self._attempts(stage.answer, "readings", key, given, limit)
        return out + self._fire(stage.expire, "readings", limit)


@dataclass
class FakeWindows(FakeQuery):
    """Queries over several streams: ``queries`` as bytes, or None where they change."""

    call: WindowCall
    queries: bytes | None = field(kw_only=True)

    def _task(self, part: pa.Table, stream: int) -> Iterator[pa.RecordBatch]:
        return blocks_of_rows(part.to_batches(), self.call, stream, bucket_keys(self.call, self.tiling))

    def changed(
        self, tables: Mapping[str, pa.Table], changes: Sequence[pa.Table]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        """Answers and rejects of one micro-batch that brings changes of the queries, too."""
        limit = self._watermark()
        blocks = self._shuffled(tables)
        for key in bucket_keys(self.call, self.tiling):
            blocks[key] += [changes_block(i, table) for i, table in enumerate(changes) if len(table)]
        return self._answered(self._run_stages({key: blobs for key, blobs in blocks.items() if blobs}, limit))

    def _run_stages(self, blocks: Mapping[int, Sequence[bytes]], limit: int | None) -> list[bytes]:
        stage = WindowStage(self.call, self.queries, bucket_keys(self.call, self.tiling)[0])
        out: list[bytes] = []
        for key, given in sorted(blocks.items()):
            out += self._attempts(stage.answer, "windows", key, given, limit)
        return out + self._fire(stage.expire, "windows", limit)
