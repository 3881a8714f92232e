"""Have every kernel at hand before the first row comes: loaded from the disk cache, on a fresh machine compiled."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pyarrow as pa
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target

from appulse.engines.aggregates.call import AggregateBucket, resolve_aggregate
from appulse.engines.encounters.bucket import LocalEncounters
from appulse.engines.encounters.call import EncounterSettings, resolve_encounters
from appulse.engines.fast_compiling import compile_faster
from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.fences.local import LocalFences
from appulse.engines.imputing import bound, chosen_for, filled_table
from appulse.engines.join.assign import AssignSettings, LocalAssign, resolve_assign
from appulse.engines.join.call import JoinCall, JoinSettings, resolve
from appulse.engines.join.local import LocalJoin
from appulse.engines.join.nearest import NearestSettings, resolve_nearest
from appulse.engines.join.outliers import OutlierSettings, resolve_outliers
from appulse.engines.local import Local
from appulse.engines.options import Options
from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.sensors.call import SensorSettings, resolve_sensors
from appulse.engines.sensors.phenomena import PhenomenaSettings, resolve_phenomena
from appulse.engines.sensors.readings import ReadingsBucket
from appulse.engines.spark.codec import pack, unpack
from appulse.engines.spark.installation import available_cores
from appulse.engines.spark.join.number_bucket import NumberBucket
from appulse.engines.spark.readings_codec import pack_readings, unpack_readings
from appulse.engines.spark.sensors.routing import value_routing
from appulse.engines.spark.tiles import hashed_plan
from appulse.engines.spark.tiling import Tiling
from appulse.imputation.dependencies import DifferentialDependency
from appulse.imputation.imputer import DependencyImputer
from appulse.kernels import jit
from appulse.kernels.few_points import in_order
from appulse.kernels.numbering import UNCERTAIN_COUNT
from appulse.kernels.poisson_binomial import EXACT, CountRule
from appulse.model.encode import encode
from appulse.model.geometries import shapely_module
from appulse.model.meaning import digest
from appulse.model.motion import Straight
from appulse.model.readings import encode_readings
from appulse.model.stream import Stream
from appulse.model.strings import Bytes, distinct
from appulse.model.uncertainty import Ball, Exact, Gaussian, Incomplete, Model, Position, Samples
from appulse.operators.happenings import NEVER
from appulse.operators.partners import MOST_COUNTED
from appulse.operators.running_presence import LongWindow
from appulse.operators.sensor_join import SensorJoin
from appulse.operators.similarity_join import SimilarityJoin
from appulse.windows.definitions import CountWindow, TimeWindow, UncertainCountWindow, Window
from appulse.windows.frames import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODELS: tuple[tuple[Model, Model], ...] = (
    (Exact("x", "y"), Exact("x", "y")),
    (Gaussian("x", "y", sigma=1.0), Gaussian("x", "y", sigma=1.0)),
    (Exact("x", "y"), Gaussian("x", "y", covariance=(1.0, 0.5, 1.0))),
    (Position("x", "y"), Position("x", "y", sigma=1.0)),
    (Position("x", "y", sigma=1.0), Position("x", "y", ellipse=(2.0, 1.0, 30.0))),
    (Position("x", "y", altitude="ts"), Position("x", "y", sigma=1.0, altitude="ts", altitude_sigma=2.0)),
    (Samples("s", weights="w"), Ball("x", "y", radius=1.0)),
)


_KERNELS = Path(jit.__file__).parent
_PACKAGE = jit.__name__.rpartition(".")[0]
_MARK = _KERNELS / "__pycache__" / "compiled"


def small_table() -> pa.Table:
    """A few rows with columns for every model."""
    n = 8
    place = np.arange(n) % 4 / 2.0
    return pa.table(
        {
            "id": [str(i) for i in range(n)],
            "ts": np.zeros(n),
            "x": place,
            "y": place,
            "s": [[[a, a], [a + 1.0, a]] for a in place.tolist()],
            "w": [[0.5, 0.25]] * n,
            "many": [[[a, a], [a + 1.0, a]] * 16 for a in place.tolist()],
            "t": [[a, a + 1.0] for a in place.tolist()],
        }
    )


def in_parts() -> Iterator[None]:
    """Run small calls of every kind, in process and tile by tile; nothing is kept but the machine code."""
    rows = small_table()
    for part in _PARTS:
        part(rows)
        yield


def compile_all() -> None:
    """The same by a process per core, where nothing is compiled yet; `is_compiled` is true from then on."""
    rows = small_table()
    with ProcessPoolExecutor(available_cores(), get_context("spawn"), compile_faster) as pool:
        for running in [pool.submit(part, rows) for part in (*_PARTS[:3], _choose, *_PARTS[3:])]:
            running.result()
    with suppress(OSError):  # an installation that cannot be written keeps its machine code elsewhere
        _MARK.write_text(_build())


def is_compiled() -> bool:
    """Whether `compile_all` has run over the kernels as they are, for this processor: `in_parts` then only loads."""
    try:
        return _MARK.read_text() == _build()
    except OSError:
        return False


def machine_code() -> set[str]:
    """The names of the files of kernels as they are; those of earlier sources lie beside them for ever."""
    found: set[str] = set()
    for module in iter_modules([str(_KERNELS)]):
        for kernel in vars(import_module(f"{_PACKAGE}.{module.name}")).values():
            cache: object = getattr(kernel, "_cache", None)
            if isinstance(cache, FunctionCache):
                files: Any = cache._cache_file  # noqa: SLF001 - Numba has no public way
                if of_each := files._load_index():  # noqa: SLF001
                    found |= {Path(files._index_path).name, *of_each.values()}  # noqa: SLF001
    return found


def _build() -> str:
    """What machine code depends on: Numba, the processor, the sources and, as Numba sees it, when they were written."""
    target = cpu_target.target_context.codegen().magic_tuple()
    files = [(file.name, file.stat().st_mtime, file.stat().st_size) for file in sorted(_KERNELS.glob("*.py"))]
    return digest([numba.__version__, [str(part) for part in target], files])


def _similar(rows: pa.Table) -> None:
    for left, right in _MODELS:
        for index in ("grid", "dense"):
            _join(rows, (left, right), index)
        _join(rows, (left,), "grid")
        for window in (CountWindow(3), UncertainCountWindow(3, 0.9)):
            _number(rows, (left, right), window)
    _run_on()
    for index in ("dense", "sorted"):
        _join(rows, (Samples("t"), Samples("t")), index, 1)
    _join(rows, (Samples("many"), Samples("many")), "dense")
    # Whole numbers as keys: few rows go by a short way.
    _join(rows.set_column(0, "id", pa.array(range(len(rows)))), _MODELS[0], "dense")


def _lay_out(rows: pa.Table) -> None:
    """Whole tables and large pushes, whose rows are taken cell by cell, with times in milliseconds."""
    n = 10_000
    many = rows.take(np.arange(n) % len(rows)).set_column(0, "id", pa.array(np.arange(n)))
    many = many.set_column(1, "ts", pa.array(np.arange(n), pa.timestamp("ms")))
    spread = pa.array(np.arange(n) % 97 * 10.0)
    many = many.set_column(2, "x", spread).set_column(3, "y", pa.array(np.arange(n) // 97 * 10.0))
    for model in (Exact("x", "y"), Gaussian("x", "y", sigma=1.0)):
        call = _call(many, (model, model), "auto", TimeWindow(1))
        tables = {encoding.name: many for encoding in call.encodings}
        LocalJoin(call).answers(tables).validate()
        LocalJoin(call).push(tables).validate()
    distinct(Bytes.fixed(np.zeros((9, 3), np.uint8)), 0.5)  # rows that are in many answers
    in_order(np.arange(9))


def _call(
    table: pa.Table, models: tuple[Model, ...], index: str, window: Window, d: int = 2, imputer: Any = None
) -> JoinCall:
    streams = [Stream(None, key="id", time="ts", value=m, name=f"s{i}") for i, m in enumerate(models)]
    settings = JoinSettings(epsilon=1.0, probability=0.3, window=window, options=Options(index=index), imputer=imputer)
    call = resolve(streams, [table.schema] * len(streams), settings)
    return call if call.encodings[0].dimensions is not None else call.with_dimensions(d)


def _join(table: pa.Table, models: tuple[Model, ...], index: str, d: int = 2) -> None:
    call = _call(table, models, index, TimeWindow(1), d)
    local = LocalJoin(call)
    for _ in range(2):
        local.push({encoding.name: table for encoding in call.encodings})
    local.operator.advance(1)
    tiling = Tiling.of(hashed_plan(call.plan, 2, call.encodings[0].gaussian_reach), call.plan)
    tile = SimilarityJoin(call.plan, ownership=tiling.ownership(0))
    for i, encoding in enumerate(call.encodings):
        objects, _ = encode(table, encoding)
        rows, _, _ = tiling.copies(objects)
        tiling.owners(objects)
        batch = [unpack(pack(objects.take(rows), i, 0))]
        tile.push(batch)
        tile.apply(batch)


def _measure(table: pa.Table) -> None:
    rows = table.append_column("m", table["x"])
    for left, right in _MODELS:
        streams = [
            Stream(rows, key="id", time="ts", value=m, margin="m", name=n) for m, n in ((left, "a"), (right, "b"))
        ]
        _once(streams)
        if isinstance(left, Position):
            continue
        for metric in ("manhattan", "chebyshev"):
            _once(streams, metric=metric, values=True)
            _once(streams, metric=metric)


def _once(streams: list[Stream], metric: str = "euclidean", *, values: bool = False) -> None:
    settings = JoinSettings(epsilon=1.0, probability=0.3, window=TimeWindow(1), metric=metric, values=values)
    call = resolve(streams, [stream.frame.schema for stream in streams], settings)
    LocalJoin(call).answers({encoding.name: s.frame for encoding, s in zip(call.encodings, streams, strict=True)})


def _number(table: pa.Table, models: tuple[Model, ...], window: Window) -> None:
    call = _call(table, models, "auto", window)
    local = LocalJoin(call)
    local.push({encoding.name: table for encoding in call.encodings})
    local.drain()
    local.current()
    tiling = Tiling.of(hashed_plan(call.plan, 2, call.encodings[0].gaussian_reach), call.plan)
    bucket = NumberBucket(call)
    bucket.follow(tiling)
    bucket.admit([(i, encode(table, encoding)[0]) for i, encoding in enumerate(call.encodings)])
    bucket.advance(ended=0)
    bucket.numbering.restore(bucket.numbering.since(None), whole=True)


def _run_on() -> None:
    """A window of rows that may not exist, which goes on from push to push."""
    window, number = LongWindow(0, 0, 0, np.full(9, 0.5)), np.arange(1)
    window.evict(0, np.full(1, 0.5), np.ones(1, bool), CountRule(3, 0.9, 0.0, 9, EXACT))
    window.inside(number, number + 9, number - 1, Rule(UNCERTAIN_COUNT, 3))


def _impute(table: pa.Table) -> None:
    places = np.arange(40) % 5 / 4.0
    known = pa.table({"x": places, "y": places, "z": np.arange(40.0) % 7})
    rules = [
        DifferentialDependency({"x": 0.5}, "z", 9.0),
        DifferentialDependency({"z": 0.5}, "y", 9.0, where={"x": (0.0, 1.0)}),
    ]
    holes = np.arange(len(table)) % 3
    lost = table.set_column(3, "x", pa.array(table["x"].to_numpy(), mask=holes == 0))
    lost = lost.append_column("z", pa.array(table["x"].to_numpy(), mask=holes == 1))
    lost = lost.set_column(2, "y", pa.array(table["y"].to_numpy(), mask=holes == 2))
    value = Incomplete("x", "y", "z")
    for joint in (False, True):
        imputer = DependencyImputer(known, rules, joint=joint, instances=30)
        for window in (TimeWindow(1), CountWindow(3)):
            call = _call(lost, (value, value), "auto", window, 3, imputer)
            local = LocalJoin(call)
            for _ in range(2):
                local.push({encoding.name: lost for encoding in call.encodings})
            local.drain()
            encode(lost, call.encodings[0])  # as on Spark, where no row waits


def _choose(_: pa.Table) -> None:
    """What ``"auto"`` chooses among, by rows that miss something here and there; Spark's workers do not choose."""
    at = np.arange(60)
    values = {name: np.sin(at / 9 + k) + np.cos(at * k) for k, name in enumerate("xy")}
    holes = {name: pa.array(of, mask=at % 7 == k) for k, (name, of) in enumerate(values.items())}
    rows = pa.table({"id": at, "ts": at * 1.0, **holes})
    stream = Stream(rows, key="id", time="ts", value=Incomplete("x", "y"))
    filled_table(rows, stream, bound(chosen_for("auto", stream, rows), Incomplete("x", "y")))


def _aggregate(table: pa.Table) -> None:
    stream = Stream(None, key="id", time="ts", value=Samples("t", weights="w"))
    for window in (TimeWindow(1), UncertainCountWindow(3, 0.9)):
        call = resolve_aggregate(
            stream,
            table,
            {"t": ("sum", "mean", "count", "min", "max", "median")},
            window=window,
            distribution=True,
            single_valued=False,
            on_reject="collect",
        )
        Local(AggregateBucket(call)).answers({call.encoding.name: table})
    certain = Stream(None, key="id", time="ts", value=Exact("x"))
    named: dict[str, Any] = {"distribution": False, "single_valued": False, "on_reject": "collect"}
    call = resolve_aggregate(certain, table, {"x": ("sum", "median", "frequent5")}, window=TimeWindow(1), **named)
    Local(AggregateBucket(call)).answers({call.encoding.name: table})
    pushed = {"x": ("sum", "min", "std", "median")}
    engine = Local(AggregateBucket(resolve_aggregate(certain, table, pushed, window=TimeWindow(1000), **named)))
    table = table.set_column(table.column_names.index("ts"), "ts", pa.array(np.arange(len(table)) * 1.0))
    for begin, rows in ((0, len(table) - 2), (len(table) - 2, 1), (len(table) - 1, 1)):
        engine.push({call.encoding.name: table.slice(begin, rows)})


def _match(table: pa.Table) -> None:
    stream = Stream(None, key="id", time="ts", value=Exact("x", "y"))
    # Fractions of many digits, conditions with a rest, and more boxes than a block has.
    conditions = [f"x > {i / 7} AND y <= 0.12345678901234567" for i in range(20)] + ["x + y > 1"]
    queries = pa.table({"query": range(len(conditions)), "condition": conditions})
    call = resolve_queries(stream, table, queries.schema, probability=None, on_reject="collect")
    engine = LocalQueries(call)
    engine.change(queries)
    engine.push(table)
    engine.queries.match({"x": table["x"].combine_chunks(), "y": table["y"].combine_chunks()}, len(table), cluster=4)
    unsure = replace(stream, value=Gaussian("x", "y", sigma=1.0))
    call = resolve_queries(unsure, table, queries.schema, probability=0.5, on_reject="collect")
    engine = LocalQueries(call)
    engine.change(queries.slice(0, 20))
    engine.push(table)


def _sense(table: pa.Table) -> None:
    stream = Stream(table, key="id", time="ts", value="x", partition_by="y", carry="w")
    kinds: tuple[dict[str, Any], ...] = ({"resolution": 0.5}, {"within": 0.5})
    for similarity in kinds:
        call = resolve_sensors(stream, table.schema, SensorSettings(**similarity, window="x", expand=True))
        bucket = ReadingsBucket(call)
        local = Local(bucket)
        readings, _ = encode_readings(table, call.encoding)
        SensorJoin(call.plan).probe([readings])
        for part in (local.push({"readings": table}), local.drain()):
            part.validate()
        routing = value_routing(call.plan, 2, readings)
        parts = [unpack_readings(pack_readings(part)) for _, part in routing.parts(readings)]
        bucket.operator.apply(parts, NEVER)


def _watch(table: pa.Table) -> None:
    stream = Stream(table, key="id", time="ts", value="x")
    where = pa.table({"id": table["id"], "a": table["x"], "b": table["y"]})
    kinds: tuple[dict[str, Any], ...] = ({"similar": "summary", "resolution": 0.5}, {"within": 0.5})
    for similarity in kinds:
        settings = PhenomenaSettings(**similarity, strength=1, span=1, locations=where, reach=1.0)
        call = resolve_phenomena(stream, table.schema, settings)
        stage = call.operator()
        readings, _ = encode_readings(table, call.encoding)
        for found in call.tables(stage.push([readings], NEVER)):
            found.validate()
        known = call.operator()
        known.apply([readings], NEVER)
        known.restore(stage.standing())


def _meet(table: pa.Table) -> None:
    place, near = Position("x", "y", sigma=1.0, altitude="ts", altitude_sigma=2.0), {"horizontal": 1.0, "vertical": 1.0}
    planar = (Gaussian("x", "y", sigma=1.0), Samples("s", weights="w", names=("x", "y")))
    for value, epsilon in ((planar[0], 1.0), (planar[1], 1.0), (place, near)):
        stream = Stream(None, key="id", time="ts", value=value, motion=Straight(1))
        call = resolve_encounters(
            [stream], [table.schema], EncounterSettings(epsilon=epsilon, probability=0.3, expected_seconds=True)
        )
        local = LocalEncounters(call)
        local.push({encoding.name: table for encoding in call.encodings})
        local.drain()
    _meet_more(table)


def _meet_more(table: pa.Table) -> None:
    """Many things at once, then few of them: legs are looked for by bins, then among those held by bins, one by one."""
    stream = Stream(None, key="id", time="ts", value=Exact("x", "y"), motion=Straight(9))
    call = resolve_encounters([stream], [table.schema], EncounterSettings(epsilon=1.0, probability=1.0))
    local = LocalEncounters(call)
    for time, first, last in ((0.0, 0, 700), (1.0, 0, 700), (2.0, 0, 10), (3.0, 0, 1), (4.0, 0, 1)):
        at = np.arange(first, last)
        rows = table.take(at % len(table)).set_column(0, "id", pa.array(at.astype(str)))
        rows = rows.set_column(1, "ts", pa.array(np.full(len(at), time))).set_column(2, "x", pa.array(at * 9.0))
        local.push({encoding.name: rows for encoding in call.encodings})


def _associate(table: pa.Table) -> None:
    place = Position("x", "y", sigma=1.0)
    for value in (Gaussian("x", "y", sigma=1.0), Exact("x", "y"), place):
        streams = [Stream(None, key="id", time="ts", value=value, name=name) for name in ("a", "b")]
        schemas = [table.schema] * 2
        best = NearestSettings(epsilon=1.0, window=TimeWindow(1), how="left")
        for whole in (True, False):
            call = resolve_nearest(streams, schemas, best, whole=whole)
            local = LocalJoin(call)
            parts = [local.answers({"a": table, "b": table})] if whole else [local.push({"a": table, "b": table})]
            for part in [*parts, local.drain()]:
                part.validate()
        for n in (2, MOST_COUNTED + 1):  # counted up, and held as pairs
            rare = OutlierSettings(epsilon=1.0, fewer_than=n, probability=0.3, window=TimeWindow(1))
            LocalJoin(resolve_outliers(streams[:1], schemas[:1], rare)).answers({"a": table}).validate()
        by = "probability" if isinstance(value, Exact) else "likelihood"
        one_each = LocalAssign(
            resolve_assign(streams, schemas, AssignSettings(epsilon=1.0, probability=0.3, window="tick", by=by))
        )
        one_each.answers({"a": table, "b": table}).validate()


def _fence(table: pa.Table) -> None:
    if find_spec("shapely") is None:  # an extra
        return
    zones = pa.table(
        {"query": ["a", "b"], "region": ["POLYGON ((0 0, 1 0, 1 1, 0 0))", "POINT (0 0)"], "radius": [None, 1.0]}
    )
    # Of one thing that moves through.
    one = table.set_column(0, "id", pa.array(["a"] * len(table))).set_column(
        1, "ts", pa.array(np.arange(len(table)) / 2.0)
    )
    models: tuple[Gaussian | Position, ...] = (Gaussian("x", "y", sigma=1.0), Position("x", "y", sigma=1.0))
    shapely = shapely_module()
    plain = zones.slice(0, 1).set_column(1, "region", pa.array([shapely.to_wkb(shapely.box(0.0, 0.0, 1.0, 1.0))]))
    for value, crossing, regions in product(models, (None, 0.5), (zones, plain)):
        call = resolve_fences(
            Stream(None, key="id", time="ts", value=value, motion=None if crossing is None else Straight(1)),
            table.schema,
            regions,
            FenceSettings(enter=0.5, dwell=1, crossing=crossing),
        )
        local = LocalFences(call)
        rows = table if crossing is None else one
        local.push({encoding.name: rows for encoding in call.encodings})
        local.drain()


# Those that take longest to compile come first; what imputes needs what joins.
_PARTS = (_similar, _watch, _fence, _meet, _associate, _measure, _lay_out, _aggregate, _sense, _match, _impute)

if __name__ == "__main__":
    compile_all()
