"""How far four rows travel through the code: the functions, files and changes of file of one warm call of each kind.

    python -m tools.trips

Each call is made once to warm up, with caches of its own, and then again under `sys.setprofile`. Counted are calls of
Python functions of `src/appulse` alone: how many different functions ran, in how many files, and how often a call was
in another file than the call before it. Comprehensions and lambdas belong to the function they stand in, a generator
is called each time it goes on, and compiled kernels are not seen.

Spark is played as in the tests: what runs in its workers runs here, from the rows of a task to what the last stage
puts out, one bucket or tile, with the state of a key in a dictionary.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

import appulse as ap
from appulse.engines.join.call import JoinSettings, resolve
from appulse.engines.spark.blobs import ANSWERS
from appulse.engines.spark.join.call import join_routing, join_stages
from appulse.engines.spark.pipeline import blocks_of_task
from appulse.engines.spark.state import Cache, TileState
from appulse.engines.spark.tiles import hashed_plan
from appulse.engines.spark.tiling import Tiling
from tests.helpers.fake_spark import FakeHandle

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

PACKAGE = str(Path(ap.__file__).parent)
TITLES = {
    "join": "join in process, time window",
    "spark": "join on Spark, encode to last stage, time window",
    "count": "join on Spark, count window",
    "standing": "standing query, text to box to answer",
    "hole": "row with a hole, null to fill to pair",
    "sensor": "sensor reading to phenomenon",
}


class Trip(NamedTuple):
    """What a call ran through."""

    functions: int
    files: int
    changes: int


def main() -> None:
    """Print the table."""
    print(f"| {'trip':48} | functions | files | changes of file |\n| --- | --- | --- | --- |")
    for name, trip in trips().items():
        print(f"| {TITLES[name]:48} | {trip.functions} | {trip.files} | {trip.changes} |")


def trips() -> dict[str, Trip]:
    """The trip of each call."""
    return {name: travelled(call) for name, call in CALLS.items()}


def travelled(prepare: Callable[[], Callable[[], int]], package: str = PACKAGE) -> Trip:
    """The trip of a call that ``prepare`` makes ready, and that returns how many answers it has."""
    prepare()()
    call = prepare()
    functions: set[CodeType] = set()
    places: list[str] = []

    def seen(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and not code.co_name.startswith("<"):
            functions.add(code)
            places.append(code.co_filename)

    sys.setprofile(seen)
    try:
        answers = call()
    finally:
        sys.setprofile(None)
    if answers == 0:
        raise RuntimeError("The call has no answers: its rows did not get through.")
    changes = sum(a != b for a, b in pairwise(places))
    return Trip(len(functions), len(set(places)), changes)


def _rows(*times: float, **columns: list[float | None]) -> pa.Table:
    """A row at each of these seconds."""
    return pa.table({"id": list(range(len(times))), "ts": times, **columns})


def _pair() -> tuple[pa.Table, pa.Table]:
    """Two streams of two points each, by turns."""
    return _rows(0.0, 2.0, x=[0.0, 1.0], y=[0.0, 0.0]), _rows(1.0, 3.0, x=[0.5, 1.5], y=[0.0, 0.0])


def _stream(frame: Any, name: str | None = None, value: Any = None) -> ap.Stream:
    return ap.Stream(frame, key="id", time="ts", value=value or ap.Exact("x", "y"), name=name)


def in_process() -> Callable[[], int]:
    """A join by one call."""
    left, right = _pair()
    return lambda: len(
        ap.similarity_join(_stream(left), _stream(right), epsilon=1.5, probability=0.5, window=ap.TimeWindow(10))
    )


def on_spark(window: Any) -> Callable[[], Callable[[], int]]:
    """A join in one tile."""

    def prepare() -> Callable[[], int]:
        tables = _pair()
        call = resolve(
            [_stream(None, "a"), _stream(None, "b")],
            [table.schema for table in tables],
            JoinSettings(
                epsilon=1.5,
                probability=0.5,
                window=window,
            ),
        )
        tiling = Tiling.of(hashed_plan(call.plan, 1, None), call.plan)
        routing = join_routing(call, tiling)
        stores: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        cache = Cache(1 << 30)

        def state(kind: str) -> TileState:
            handle: Any = FakeHandle(stores[kind])
            return TileState(handle, kind, cache)

        def played() -> int:
            blocks: defaultdict[int, list[bytes]] = defaultdict(list)
            for i, table in enumerate(tables):
                for batch in blocks_of_task(table.to_batches(), call, routing, i):
                    for key, block in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                        blocks[key].append(block)
            for stage in join_stages(call, tiling):
                sent: defaultdict[int, list[bytes]] = defaultdict(list)
                for key, blobs in blocks.items():
                    for to, blob in stage.run(key, blobs, None, state(stage.name), _unarmed):
                        sent[to].append(blob)
                blocks = sent
            return sum(blob[:1] == ANSWERS for blobs in blocks.values() for blob in blobs)

        return played

    return prepare


def _unarmed(_: int) -> None:
    """No timer."""


def standing() -> Callable[[], int]:
    """Queries given as text, and rows pushed."""
    queries = pa.table({"query": [1, 2], "condition": ["x BETWEEN 0 AND 0.5", "x > 0.5 AND y < 1"]})
    rows = pa.concat_tables(_pair())
    return lambda: len(ap.match_queries(_stream(rows), queries))


def with_a_hole() -> Callable[[], int]:
    """A join of streams with a hole, by one call."""
    repository = pa.table({"x": [0.0, 0.5, 1.0, 1.0], "y": [0.0, 0.0, 0.5, 0.5]})
    rules = [ap.DifferentialDependency({"x": 0.1}, "y", 1.0)]
    imputer = ap.DependencyImputer(repository, rules)
    left, right = _rows(0.0, 2.0, x=[0.0, 1.0], y=[0.0, None]), _pair()[1]
    value = ap.Incomplete("x", "y")
    return lambda: len(
        ap.similarity_join(
            _stream(left, value=value),
            _stream(right, value=value),
            epsilon=1.5,
            probability=0.5,
            window=ap.TimeWindow(10),
            imputer=imputer,
        )
    )


def phenomenon() -> Callable[[], int]:
    """Readings to events, by one call."""
    readings = pa.table({"mote": [1, 2, 1, 2], "ts": [0.0, 1.0, 2.0, 3.0], "v": [7.0, 7.0, 7.0, 7.0]})
    return lambda: len(
        ap.phenomena(ap.Stream(readings, key="mote", time="ts", value="v"), resolution=1.0, strength=2, span=60)
    )


CALLS: dict[str, Callable[[], Callable[[], int]]] = {
    "join": in_process,
    "spark": on_spark(ap.TimeWindow(10)),
    "count": on_spark(ap.CountWindow(10)),
    "standing": standing,
    "hole": with_a_hole,
    "sensor": phenomenon,
}


if __name__ == "__main__":
    main()
