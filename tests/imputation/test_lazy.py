"""Rows with holes are filled when something may match them: the same answers at the same pushes as filled first."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.operators.plan import BOUNDS
from tests.helpers import hands

WINDOWS = (
    ap.TimeWindow(0),
    ap.TimeWindow(2),
    ap.TimeWindow(3, per_stream={"left": 1}),
    ap.CountWindow(1),
    ap.CountWindow(3),
    ap.UncertainCountWindow(2, 0.6),
    ap.DeltaWindow("odometer", 1.0),
    ap.TumblingWindow(3),
)
RULES = [
    ap.DifferentialDependency({"a": 0.5}, "b", 9.0),
    ap.DifferentialDependency({"c": 0.5}, "b", 9.0),
    ap.DifferentialDependency({"b": 0.0}, "c", 9.0),
]
VALUE = ap.Incomplete("a", "b", "c")


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "streams": draw(st.sampled_from((1, 2, 2, 3))),
        "pushes": draw(st.integers(1, 4)),
        "rows": draw(st.integers(1, 8)),
        "joint": draw(st.booleans()),
        "grouped": draw(st.booleans()),
        "exists": draw(st.booleans()),
        "order": draw(st.sampled_from(("time", "time", "arrival"))),
        "lateness": draw(st.sampled_from((0, 2))),
        "window": draw(st.sampled_from(WINDOWS)),
        "emit": draw(st.sampled_from(("matches", "changes"))),
        "epsilon": draw(st.sampled_from((0.0, 0.5, 1.0))),
        "probability": draw(st.sampled_from((0.05, 0.3, 1.0))),
    }


def pushes_of(case: dict[str, Any]) -> list[list[pa.Table]]:
    """Tables by push and stream: few values, keys that repeat, times that come a little out of order."""
    chance = np.random.default_rng(case["seed"])
    found: list[list[pa.Table]] = []
    for k in range(case["pushes"]):
        found.append([])
        for _ in range(case["streams"]):
            n = int(chance.integers(0, case["rows"] + 1))
            values = chance.integers(-3, 4, (n, 3)) / 2
            lost = chance.random((n, 3)) < 0.3
            columns = {name: pa.array(values[:, i], mask=lost[:, i]) for i, name in enumerate("abc")}
            table = {
                "id": chance.integers(0, 3, n),
                "at": np.maximum(0, 2 * k + chance.integers(-1, 3, n)),
                "room": chance.integers(0, 2, n),
                "exist": chance.choice([0.5, 0.75, 1.0], n) if case["exists"] else np.ones(n),
                "odometer": chance.integers(0, 5, n).astype(float),
                **columns,
            }
            found[-1].append(pa.table(table))
    return found


def streams_of(case: dict[str, Any]) -> dict[str, Any]:
    names = ("left", "right", "third")[: case["streams"]]
    settings: dict[str, Any] = {
        "existence": "exist",
        "partition_by": ["room"] if case["grouped"] else None,
        "lateness": case["lateness"],
        "order": case["order"],
    }
    return {name: ap.Stream(None, key="id", time="at", value=VALUE, **settings) for name in names}


def told(table: pa.Table) -> Counter[str]:
    """Rows in no order, without what was filled, numbers as far as engines agree."""
    columns = [name for name in table.schema.names if not name.endswith("_filled")]
    rows = table.select(columns).to_pylist()
    for row in rows:
        row |= {name: round(value, 10) for name, value in row.items() if isinstance(value, float)}
    return Counter(map(repr, rows))


@settings(max_examples=60)
@given(cases())
def test_by_hand_answers_come_as_if_all_had_been_filled_first(case: dict[str, Any]) -> None:
    known = np.random.default_rng(case["seed"]).integers(-3, 4, (9, 3)) / 2
    imputer = ap.DependencyImputer(pa.table(dict(zip("abc", known.T, strict=True))), RULES, joint=case["joint"])
    streams = streams_of(case)
    given_ = {name: case[name] for name in ("window", "emit", "epsilon", "probability")}
    if case["streams"] == 1 and isinstance(case["window"], ap.TimeWindow):
        given_["window"] = ap.TimeWindow(2)
    lazy = hands.similarity_join(**streams, **given_, imputer=imputer)
    eager = hands.similarity_join(**streams, **given_, imputer=imputer, options=ap.Options(bounds=BOUNDS - {"lazy"}))
    samples = ap.Samples("imputed", "imputed_weights", names=("a", "b", "c"))
    first = hands.similarity_join(**{name: replace(one, value=samples) for name, one in streams.items()}, **given_)
    for tables in pushes_of(case):
        rows = dict(zip(streams, tables, strict=True))
        filled = {name: ap.impute(replace(streams[name], frame=table), imputer).frame for name, table in rows.items()}
        found, expected = lazy.push(**rows), eager.push(**rows)
        assert told(found) == told(first.push(**filled))
        assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, expected.to_pylist()))
        assert told(lazy.current()) == told(first.current())
    assert told(lazy.drain()) == told(first.drain())
    eager.drain()
    assert lazy.rejects().to_pylist() == eager.rejects().to_pylist()
    assert told(lazy.current()) == told(first.current())


def far_apart(n: int, seed: int) -> tuple[pa.Table, list[pa.Table]]:
    """A repository in which c follows from a and b, and two streams that hardly ever come close."""
    chance = np.random.default_rng(seed)
    known = chance.random((2 * n + 1000, 3))
    known[:, 2] = known[:, :2].sum(axis=1) + 0.01 * chance.normal(size=len(known))
    tables = []
    for s in range(2):
        rows = known[n * s : n * (s + 1)].copy()
        rows[::2, 2] = np.nan
        columns = {name: pa.array(rows[:, k], from_pandas=True) for k, name in enumerate("abc")}
        tables.append(pa.table({"id": np.arange(n), "at": np.arange(n), **columns}))
    return pa.table(dict(zip("abc", known[2 * n :].T, strict=True))), tables


@pytest.mark.parametrize("window", [ap.TimeWindow(5), ap.CountWindow(6)], ids=["time", "count"])
@pytest.mark.parametrize("pushes", [1, 20])
def test_most_rows_far_from_all_others_are_never_filled(window: Any, pushes: int) -> None:
    repository, tables = far_apart(400, 1)
    imputer = ap.DependencyImputer(repository, [ap.DifferentialDependency({"a": 0.05, "b": 0.05}, "c", 0.5)])
    join = hands.similarity_join(
        left=ap.Stream(None, key="id", time="at", value=VALUE),
        right=ap.Stream(None, key="id", time="at", value=VALUE),
        epsilon=0.05,
        probability=0.3,
        window=window,
        imputer=imputer,
    )
    answers = 0
    for k in range(pushes):
        part = slice(k * 400 // pushes, (k + 1) * 400 // pushes)
        rows = {
            name: table.slice(part.start, part.stop - part.start)
            for name, table in zip(("left", "right"), tables, strict=True)
        }
        answers += len(join.push(**rows))
    answers += len(join.drain())
    assert answers > 3
    unfilled = join._engine.bucket.unfilled if join._engine is not None else None
    assert unfilled is not None
    assert unfilled.never > 240  # of 400
    # What is out of reach is forgotten.
    assert pushes == 1 or sum(map(len, unfilled._serials)) < 40
