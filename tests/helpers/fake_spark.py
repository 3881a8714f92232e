"""The stateful stages of the Spark engine without Spark: keys and state, workers that forget, attempts that fail.

Everything of appulse that runs in Spark's workers runs here too; only Spark is played.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.engines.aggregates.call import AggregateBucket
from appulse.engines.multi_queries.bucket import changes_block
from appulse.engines.sensors.readings import ReadingsBucket
from appulse.engines.spark.blobs import ANSWERS, METRICS, REJECTS, end_mark, read_table
from appulse.engines.spark.join.assign import assign_stages, block_routing
from appulse.engines.spark.join.call import join_routing, join_stages
from appulse.engines.spark.multi_queries.call import ToGroupsOfRows, query_stage
from appulse.engines.spark.pipeline import blocks_of_task
from appulse.engines.spark.routing import ToGroups, bucket_keys
from appulse.engines.spark.sensors.call import ToBuckets
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.state import Cache, TileState
from appulse.engines.spark.tiling import Tiling, Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from appulse.engines.base import Call
    from appulse.engines.join.assign import AssignCall
    from appulse.engines.join.call import JoinCall
    from appulse.engines.multi_queries.call import WindowCall
    from appulse.engines.sensors.readings import ReadingsCall
    from appulse.engines.spark.pipeline import Routing
    from appulse.engines.spark.sensors.call import Routing as ReadingsRouting
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
class FakeQuery:
    """A streaming query over micro-batches of tables by stream name."""

    call: Call[Any]
    plan: TilePlan
    random: Random
    workers: int = 2
    stores: dict[Any, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    timers: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.caches = [Cache(1 << 30) for _ in range(self.workers)]
        self.newest: list[int | None] = [None] * len(self.call.lateness)
        self._take(Tiling((Version(self.plan),), 0))

    def _take(self, tiling: Tiling) -> None:
        self.tiling, self.routing, self.stages = tiling, self._routing(tiling), self._stages(tiling)

    def _routing(self, tiling: Tiling) -> Routing:
        raise NotImplementedError

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:
        raise NotImplementedError

    def batch(self, tables: Mapping[str, pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
        """Answers and rejects of one micro-batch."""
        limit = self._watermark()
        return self._answered(self._run(self._shuffled(tables), limit))

    def end(self) -> tuple[list[pa.Table], list[pa.Table]]:
        """Answers and rejects of the end of the streams."""
        newest = max((time for time in self.newest if time is not None), default=0)
        return self._answered(self._run({key: [end_mark(newest)] for key in self.routing.keys}, self._watermark()))

    def _run(self, blocks: Mapping[int, Sequence[bytes]], limit: int | None) -> list[bytes]:
        """What the last stage puts out."""
        for stage in self.stages:
            sent: dict[int, list[bytes]] = defaultdict(list)
            for key, given in sorted(blocks.items()):
                blobs = list(given)
                self.random.shuffle(blobs)
                for to, blob in self._attempts(stage, key, blobs, limit):
                    sent[to].append(blob)
            for to, blob in self._fire(stage, limit):
                sent[to].append(blob)
            blocks = sent
        return [blob for blobs in blocks.values() for blob in blobs]

    @staticmethod
    def _answered(out: Sequence[bytes]) -> tuple[list[pa.Table], list[pa.Table]]:
        assert {blob[:1] for blob in out} <= {ANSWERS, METRICS, REJECTS}
        tables = {tag: [read_table(blob) for blob in out if blob[:1] == tag] for tag in (ANSWERS, REJECTS)}
        return tables[ANSWERS], tables[REJECTS]

    def _watermark(self) -> int | None:
        """The watermark of the batches before, as Spark has it."""
        late, idle = self.call.lateness, self.call.idle_after
        live = [stream for stream, silence in enumerate(idle) if silence is None]
        lags = [one + silence for one, silence in zip(late, idle, strict=True) if silence is not None]
        clocks = [(self.newest[stream], late[stream]) for stream in live]
        if lags:  # those that may fall silent share a clock, over the rows of all
            clocks.append((max((time for time in self.newest if time is not None), default=None), max(lags)))
        behind = [time // 1000 - -(-lag // 1000) for time, lag in clocks if time is not None]
        return min(behind) * 1000 if len(behind) == len(clocks) and min(behind) > 0 else None

    def _shuffled(self, tables: Mapping[str, pa.Table]) -> dict[int, list[bytes]]:
        """Blocks by key, of tasks that got some of the rows each, in no order."""
        blocks: dict[int, list[bytes]] = defaultdict(list)
        for s, encoding in enumerate(self.call.encodings):
            table = tables.get(encoding.name)
            if table is None:
                continue
            cut = self.random.randint(0, len(table))
            for part in (table.slice(0, cut), table.slice(cut)):
                for batch in blocks_of_task(part.to_batches(), self.call, self.routing, s):
                    for key, block, time in zip(*[batch.column(i).to_pylist() for i in range(3)], strict=True):
                        blocks[key].append(block)
                        self._see(s, block, time)
        return blocks

    def _see(self, stream: int, block: bytes, time: Any) -> None:
        if block[:1] == REJECTS:
            return
        micros = int(pa.scalar(time, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())
        known = self.newest[stream]
        self.newest[stream] = micros if known is None else max(known, micros)

    def _attempts(self, stage: Stage, key: int, blobs: Sequence[bytes], limit: int | None) -> list[tuple[int, bytes]]:
        """The output of the attempt that counts; one may fail before it, having changed nothing but caches.

        Whatever a worker knew, and in whatever order blocks came, it has to write the same.
        """
        place = stage.name, key
        before = copy.deepcopy(self.stores[place])
        if self.random.random() < 0.2:
            failing = copy.deepcopy(self.stores[place])
            stage.run(key, list(blobs), limit, self._state(stage.name, failing), lambda _: None)
        arm = partial(self.timers.__setitem__, place)
        out = stage.run(key, list(blobs), limit, self._state(stage.name, self.stores[place]), arm)
        shuffled = self.random.sample(list(blobs), len(blobs))
        handle: Any = FakeHandle(before)
        stage.run(key, shuffled, limit, TileState(handle, stage.name, Cache(1 << 30)), lambda _: None)
        assert before == self.stores[place], "another attempt would have written something else"
        return out

    def _state(self, kind: str, store: dict[str, Any]) -> TileState:
        cache = self.random.choice(self.caches)
        if self.random.random() < 0.15:
            cache.clear()
        handle: Any = FakeHandle(store)
        return TileState(handle, kind, cache)

    def _fire(self, stage: Stage, limit: int | None) -> list[tuple[int, bytes]]:
        out: list[tuple[int, bytes]] = []
        for place, at in list(self.timers.items()):
            if place[0] == stage.name and limit is not None and at <= limit // 1000:
                del self.timers[place]
                arm = partial(self.timers.__setitem__, place)
                out += stage.run(place[1], None, limit, self._state(stage.name, self.stores[place]), arm)
        return out


@dataclass
class FakeSpark(FakeQuery):
    """A join."""

    call: JoinCall

    def __post_init__(self) -> None:
        super().__post_init__()
        self._take(Tiling.of(self.plan, self.call.plan))

    def replan(self, plan: TilePlan) -> None:
        """A new start from the checkpoint, with a new version of the plan."""
        newest = max((time for time in self.newest if time is not None), default=0)
        self._take(self.tiling.followed_by(plan, newest + 1))

    def _routing(self, tiling: Tiling) -> Routing:
        return join_routing(self.call, tiling)

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:
        return join_stages(self.call, tiling)


@dataclass
class FakeAggregate(FakeQuery):
    """Aggregates of windows."""

    def _routing(self, tiling: Tiling) -> Routing:
        return ToGroups(bucket_keys(tiling, grouped=self.call.grouped))

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, AggregateBucket), "aggregate")]


@dataclass
class FakeReadings(FakeQuery):
    """An operator over readings."""

    call: ReadingsCall
    by: ReadingsRouting = field(kw_only=True)

    def _routing(self, tiling: Tiling) -> Routing:
        return ToBuckets(self.by, bucket_keys(tiling, grouped=self.call.grouped), goes_on=self.call.goes_on)

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, ReadingsBucket), "readings")]


@dataclass
class FakeWindows(FakeQuery):
    """Queries over several streams: ``queries`` as bytes, or None where they change."""

    call: WindowCall
    queries: bytes | None = field(kw_only=True)

    def changed(
        self, tables: Mapping[str, pa.Table], changes: Sequence[pa.Table]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        """Answers and rejects of one micro-batch that brings changes of the queries, too."""
        limit = self._watermark()
        blocks = self._shuffled(tables)
        for key in self.routing.keys:
            blocks[key] += [changes_block(i, table) for i, table in enumerate(changes) if len(table)]
        return self._answered(self._run({key: blobs for key, blobs in blocks.items() if blobs}, limit))

    def _routing(self, tiling: Tiling) -> Routing:
        return ToGroupsOfRows(self.call, bucket_keys(tiling, grouped=self.call.grouped))

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:
        return [query_stage(self.call, self.queries, tiling)]


@dataclass
class FakeAssign(FakeQuery):
    """An assignment."""

    call: AssignCall

    def _routing(self, tiling: Tiling) -> Routing:
        return block_routing(self.call, tiling)

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return assign_stages(self.call)
