"""What the sensor join and phenomena are compared by beyond speed: features (Fig. 15), and conditions by phenomena."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import appulse as ap
from benchmarks.harness import say
from benchmarks.tables import Curves, estimate
from examples.data_folder import data_at

DATA = "beijing_36_pm25"
HEAVY = 150.0  # µg/m³: heavy pollution, HJ 633-2012
CONDITIONS = 1000


class Feature(NamedTuple):
    """A row of Figure 15: what each has of it, and the tests or code that show it."""

    name: str
    tree: str
    mjoin: str
    ours: str
    shown_by: tuple[str, ...]


_JOIN, _RIVALS, _HEADS = (
    "tests/operators/test_sensor_join.py",
    "tests/project/test_sensor_contestants.py",
    "tests/lab/test_network.py",
)
_TWIN = f"{_RIVALS}::test_every_contestant_gives_the_answers_of_the_twin"
_ALL_HEADS = f"{_HEADS}::test_all_heads_together_answer_as_one_would_and_as_the_twin"
_CODE = ("benchmarks/mjoin_kernels.py", "src/appulse/kernels/occurrences.py")
_COME_AND_GO = "test_sensors_that_come_and_go_leave_nothing_behind"
_FEEDBACK = "tests/lab/test_network_parts.py::test_the_corrected_rule_is_held_and_goes_on_exploring"
FEATURES = (
    Feature("the same answers, at once, without waiting for other streams", "yes", "yes", "yes", (_TWIN,)),
    Feature("answers as wide as what matched", "no: NULL", "no: NULL", "yes", (f"{_JOIN}::test_equals_the_twin",)),
    Feature("what a reading looks at, of m streams", "a node a level, m columns", "m - 1 tables", "one value", _CODE),
    Feature("keeps partial results", "yes", "no", "no", (f"{_RIVALS}::test_trees_say_what_does_not_fit",)),
    Feature("sensors come and go", "made anew", "a table more or less", "nothing to do", (f"{_JOIN}::{_COME_AND_GO}",)),
    Feature("windows by stream", "yes", "yes", "yes", (_TWIN, f"{_JOIN}::test_windows_by_column_and_by_sensor")),
    Feature(
        "values within a distance",
        "no",
        "no",
        "yes",
        (f"{_JOIN}::test_values_within_reach_of_bins_and_of_rounding",),
    ),
    Feature("alike by summary, slope or pattern", "no", "no", "yes", (f"{_JOIN}::test_sensors_that_did_alike",)),
    Feature(
        "late readings", "no", "no", "within lateness, else rejects", (f"{_JOIN}::test_late_readings_are_rejects",)
    ),
    Feature("among cluster heads", "no", "all heads are asked", "all or some are asked", (_ALL_HEADS,)),
    Feature(
        "who is worth asking",
        "no",
        "no",
        "feedback; filters, which lose nothing",
        (_FEEDBACK, f"{_HEADS}::test_filters_lose_nothing"),
    ),
    Feature(
        "over many machines by value",
        "no",
        "no",
        "yes",
        ("tests/spark/test_readings_stage.py::test_buckets_answer_as_the_twin",),
    ),
)


_TABLE = """### S9, Fig. 15: features

The printed cells are not at hand: rows are the features that the text names, and some of ours. Trees and MJoin are
those of `benchmarks/mjoin.py`; MJoin among heads is that of `benchmarks/network_claims.py`.

| feature | tree of binary joins | MJoin | ours | shown by |
|---|---|---|---|---|"""


def features() -> str:
    """S9: the features as a table."""
    rows = [f"| {' | '.join(row[:4])} | {', '.join(f'`{path}`' for path in row.shown_by)} |" for row in FEATURES]
    return "\n".join([_TABLE, *rows, ""])


def guided(runs: int) -> list[Curves]:
    """Conditions asked of all readings, or of those in a phenomenon: seconds, by turns, and that answers are the same.

    Hourly PM2.5 of 36 stations of Beijing; a phenomenon is heavy smog at 4 stations, 30 km from one to the next.
    """
    if not data_at(DATA).exists():
        say(f"conditions by phenomena: there is no {data_at(DATA)}")
        return []
    readings, places = _beijing()
    begun = time.perf_counter()
    events = ap.phenomena(
        ap.Stream(readings, key="station", time="time", value="pm"),
        resolution=HEAVY,
        strength=3,
        span="4 hours",
        min_sensors=4,
        locations=places,
        reach=30.0,
    )
    events = events.filter(pa.compute.equal(events["value"], HEAVY))
    told = time.perf_counter()
    known = ap.lab.field.tagged(readings, events, sensor="station", time="time", value="pm", resolution=HEAVY)
    seconds = {"phenomena": [told - begun], "tags": [time.perf_counter() - told]}
    inside = known.filter(known["phenomenon"].is_valid())
    low = np.linspace(HEAVY, 2 * HEAVY, CONDITIONS, endpoint=False).round(2).tolist()
    ways: dict[str, tuple[pa.Table, list[str]]] = {
        "all readings": (known, [f"phenomenon IS NOT NULL AND pm >= {x} AND pm < {x + 1}" for x in low]),
        "readings in a phenomenon": (inside, [f"pm >= {x} AND pm < {x + 1}" for x in low]),
    }
    for _ in range(2 * runs + 1):
        answers = {}
        for name, (rows, conditions) in ways.items():
            queries = pa.table({"query": np.arange(CONDITIONS), "condition": conditions})
            begun = time.perf_counter()
            answers[name] = ap.match_queries(ap.Stream(rows, key="station", time="time", value=ap.Exact("pm")), queries)
            seconds.setdefault(name, []).append(time.perf_counter() - begun)
        first, second = answers.values()
        if not first.equals(second) or not len(first):
            raise RuntimeError(f"all readings give {len(first)} answers, those in a phenomenon {len(second)}")
    say(f"{len(readings):,} readings, {len(inside):,} in a phenomenon, {len(first):,} answers")
    saved = [100 * (1 - few / every) for every, few in zip(*(seconds[name][1:] for name in ways), strict=True)]
    lines = {name: [estimate([1e3 * float(np.median(some))])] for name, some in seconds.items()}
    lines["per cent saved"] = [estimate([float(np.median(saved))])]
    lines["per cent of readings in a phenomenon"] = [estimate([100 * len(inside) / len(readings)])]
    title = f"Conditions only where a phenomenon is: {CONDITIONS:,} ranges of PM2.5, Beijing"
    return [Curves("guided", title, "answers", "milliseconds (medians), and shares", (f"{len(first):,}",), lines)]


def _beijing() -> tuple[pa.Table, pa.Table]:
    """Readings in order of time, and where stations are, in kilometres."""
    import pandas as pd

    wide = pd.read_parquet(data_at(DATA) / "pm25_ground.parquet").rename(columns={"datetime": "time"})
    long = wide.melt("time", var_name="station", value_name="pm").dropna().sort_values(["time", "station"])
    sites = pd.read_parquet(data_at(DATA) / "pm25_latlng.parquet")
    east = (sites["longitude"] - 116.4) * 111.32 * np.cos(np.radians(39.93))
    places = pd.DataFrame({"station": sites["sensor_id"], "x": east, "y": (sites["latitude"] - 39.93) * 110.57})
    return pa.Table.from_pandas(long, preserve_index=False), pa.Table.from_pandas(places, preserve_index=False)
