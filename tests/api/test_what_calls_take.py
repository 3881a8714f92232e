"""The table of what each call takes, in docs/semantics/values.md: every cell is tried."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import appulse as ap

PAGE = Path(__file__).resolve().parents[2] / "docs" / "semantics" / "values.md"
ROWS = pa.table(
    {name: [1.0, 1.1, 1.2] for name in ("t", "x", "y", "lat", "lon", "up")}
    | {
        "k": [1, 2, 3],
        "major": [2.0] * 3,
        "minor": [1.0] * 3,
        "angle": [30.0] * 3,
        "hull": [0.5] * 3,
        "heat": [20.0] * 3,
    }
)
REGION = pa.table({"query": ["q"], "region": ["POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))"]})
CIRCLE, ELLIPSE = ap.Position("lat", "lon", sigma=1.0), ap.Position("lat", "lon", ellipse=("major", "minor", "angle"))
HIGH = ap.Position("lat", "lon", sigma=1.0, altitude="up")
EXACT, LEANING = ap.Exact("x", "y"), ap.Gaussian("x", "y", covariance=("major", 0.5, "minor"))

#: What is tried of each column: the value of a stream, its margin, and arguments of the call.
COLUMNS: dict[str, list[dict[str, Any]]] = {
    "`Position`": [{"value": CIRCLE}, {"value": ELLIPSE}],
    "`covariance=`": [{"value": LEANING}],
    "cylinder, groups": [
        {"value": HIGH, "epsilon": {"horizontal": 9.0, "vertical": 5.0}},
        {"value": LEANING, "epsilon": {"x": 9.0, "y": 5.0}},
    ],
    "margin": [{"value": CIRCLE, "margin": "hull"}, {"value": LEANING, "margin": 0.5}],
    '`metric="manhattan"`': [{"value": LEANING, "metric": "manhattan"}],
    '`metric="cosine"`': [{"value": EXACT, "metric": "cosine"}],
    "`scale=`": [{"value": LEANING, "scale": {"x": 2.0}}],
}


def stream(value: Any, margin: Any = 0.0, **more: Any) -> ap.Stream:
    return ap.Stream(ROWS, key="k", time="t", value=value, margin=margin, **more)


def pairs(call: Any, **usual: Any) -> Any:
    def tried(value: Any, margin: Any = 0.0, **asked: Any) -> Any:
        return call(*(stream(value, margin, name=name) for name in "ab"), **{"epsilon": 1.0, **usual, **asked})

    return tried


def alone(call: Any, *given: Any, motion: Any = None, **usual: Any) -> Any:
    def tried(value: Any, margin: Any = 0.0, **asked: Any) -> Any:
        return call(stream(value, margin, motion=motion), *given, **(usual | asked))

    return tried


def explained(value: Any, margin: Any = 0.0, **asked: Any) -> Any:
    one, other, _ = ROWS.to_pylist()
    return ap.explain_pair(one, other, left=stream(value, margin), **{"epsilon": 1.0, "probability": 0.5, **asked})


def averaged(value: Any, margin: Any = 0.0) -> Any:
    return ap.window_aggregate(stream(value, margin), {value.columns[0]: "mean"}, window=9)


CLOSE: dict[str, Any] = {"probability": 0.5, "window": 9}
#: How each call is tried, and the function whose arguments it has.
CALLS: dict[str, tuple[Any, Any]] = {
    "`similarity_join`": (ap.similarity_join, pairs(ap.similarity_join, **CLOSE)),
    '`similarity_join(how="left")`': (ap.similarity_join, pairs(ap.similarity_join, how="left", **CLOSE)),
    "`self_join`": (ap.self_join, alone(ap.self_join, epsilon=1.0, **CLOSE)),
    "`self_join` with `motion=`": (ap.self_join, alone(ap.self_join, motion=ap.Straight(9), epsilon=1.0, **CLOSE)),
    "`explain_pair`": (ap.explain_pair, explained),
    "`nearest`": (ap.nearest, pairs(ap.nearest, window=9)),
    '`nearest(by="probability")`': (ap.nearest, pairs(ap.nearest, window=9, by="probability")),
    "`assign`": (ap.assign, pairs(ap.assign, probability=0.5, window="tick")),
    "`outliers`": (ap.outliers, alone(ap.outliers, epsilon=1.0, fewer_than=2, **CLOSE)),
    "`encounters`": (ap.encounters, alone(ap.encounters, motion=ap.Straight(9), epsilon=1.0, probability=0.5)),
    "`match_queries`": (ap.match_queries, alone(ap.match_queries, REGION, probability=0.5)),
    "`fence_events`": (ap.fence_events, alone(ap.fence_events, REGION)),
    "`fence_events(crossing=)`": (ap.fence_events, alone(ap.fence_events, REGION, motion=ap.Straight(9), crossing=0.5)),
    "`fence_advice`": (ap.fence_advice, alone(ap.fence_advice, REGION, draws=1)),
    "`window_aggregate`": (ap.window_aggregate, averaged),
}


def cells() -> list[tuple[str, str, str]]:
    lines = PAGE.read_text(encoding="utf-8").split("## Which call takes what")[1].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    (_, *columns), _, *rows = table
    assert columns == list(COLUMNS)
    assert [row[0] for row in rows] == list(CALLS)
    return [(row[0], column, cell) for row in rows for column, cell in zip(columns, row[1:], strict=True)]


@pytest.mark.parametrize(("call", "column", "cell"), cells())
def test_every_cell_is_true(call: str, column: str, cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    function, tried = CALLS[call]
    for asked in COLUMNS[column]:
        missing = asked.keys() - {"value", "margin"} - inspect.signature(function).parameters.keys()
        assert bool(missing) == (cell == "-")
        if cell == "yes":
            assert tried(**asked) is not None
        elif cell != "-":
            error = {"error": ap.BadArgument, "not built": ap.NotBuilt}[cell]
            with pytest.raises(error) as caught:
                tried(**asked)
            assert type(caught.value) is error
            assert re.search(r"Leave|Give|give|leave|takes", str(caught.value))
    capsys.readouterr()


@pytest.mark.parametrize(
    "call", [name for name, (of, _) in CALLS.items() if "epsilon" in inspect.signature(of).parameters]
)
def test_a_margin_beside_several_epsilons_is_an_error(call: str) -> None:
    for asked in COLUMNS["cylinder, groups"]:
        with pytest.raises(ap.BadArgument, match=r"added to one epsilon|Several epsilons"):
            CALLS[call][1](margin=0.5, **asked)
