"""What a join says of single pairs, and of what it expects: the numbers are right, and so is what decided."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import appulse as ap
from appulse.operators import output

SAMPLES = ap.Samples("s", weights="w")


def _row(samples: list[list[float]], key: int = 0, at: float = 0.0, mass: float = 1.0) -> dict[str, Any]:
    return {"id": key, "ts": at, "s": samples, "w": [mass / len(samples)] * len(samples)}


def _told(left: dict[str, Any], right: dict[str, Any], model: Any = SAMPLES, **changes: Any) -> str:
    settings: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5} | changes
    text = ap.explain_pair(left, right, left=ap.Stream(None, key="id", time="ts", value=model), **settings)
    numbers = re.search(r"probability: (\S+);", text)
    assert numbers is not None
    row = pa.Table.from_pylist([left]), pa.Table.from_pylist([right])
    streams = [ap.Stream(table, key="id", time="ts", value=model) for table in row]
    settings = {"window": ap.TimeWindow(1e9)} | settings
    true = ap.similarity_join(*streams, **(settings | {"probability": 1e-9, "window": ap.TimeWindow(1e9)}))
    assert float(numbers[1]) == pytest.approx(true["probability"][0].as_py() if len(true) else 0.0)
    assert ("no answer" in text) == (len(ap.similarity_join(*streams, **settings)) == 0)
    for bound in re.findall(r"at most ([\d.e+-]+)(?:\n|$)", text):
        assert float(bound) >= float(numbers[1]) * (1 - 1e-6)
    return text


def test_the_bound_that_decided_is_named() -> None:
    near, rng = [[0.0, 0.0]] * 4, np.random.default_rng(1)
    cloud = rng.normal(0.0, 1.0, (60, 2)).tolist()
    assert "decided by reach" in _told(_row(near), _row([[9.0, 0.0]] * 4))
    assert "decided by mass" in _told(_row(near), _row(near, mass=0.25))
    assert "decided by accept" in _told(_row(near), _row([[0.5, 0.0]] * 4))
    spread = [[x, 0.0] for x in (1.0, 1.2, 1.4, 2.4)]
    assert "decided by Cantelli's inequality along" in _told(_row(near), _row(spread), probability=0.6)
    ring = [[1.2 * np.cos(t), 1.2 * np.sin(t)] for t in np.linspace(0, 6.28, 50)]
    assert "decided by the reverse of Markov" in _told(_row([[0.0, 0.0]]), _row(ring))
    shell = [[r * np.cos(t), r * np.sin(t)] for t, r in zip(range(50), [1.1, 1.6] * 25, strict=True)]
    options = ap.Options(bounds=frozenset({"square"}))
    assert (
        "Cantelli's inequality on the squared"
        in _told(_row([[0.0, 0.0]]), _row(shell), options=options).splitlines()[-1]
    )
    assert "decided by refinement" in _told(_row(cloud), _row(cloud), probability=0.05)
    only = ap.Options(bounds=frozenset({"sample"}))
    far = (np.array(cloud) + np.array([1.5, 0.0])).tolist()
    assert "decided by bounds of single samples" in _told(_row(cloud), _row(far), probability=0.9, options=only)


def test_gaussians_are_told_in_closed_form() -> None:
    model = ap.Gaussian("x", "y", sigma="s")
    rows = [{"id": 0, "ts": 0.0, "x": x, "y": 0.0, "s": 0.5} for x in (0.0, 0.6, 1.6)]
    assert "decided by refinement" in _told(rows[0], rows[1], model)
    text = _told(rows[0], rows[2], model, probability=0.19)
    assert "half-space (deviation 0.707107): at most 0.198" in text
    assert "decided by the projection" in _told(rows[0], rows[2], model, probability=0.3, options=_without("reach"))


def _without(bound: str) -> ap.Options:
    return ap.Options(bounds=ap.Options().bounds - {bound})


def test_windows_of_time_are_checked_and_others_are_not() -> None:
    late = _row([[0.0, 0.0]], at=9.0)
    assert "decided by the window" in _told(_row([[0.0, 0.0]]), late, window=ap.TimeWindow(5))
    text = ap.explain_pair(
        _row([[0.0, 0.0]]),
        late,
        left=ap.Stream(None, key="id", time="ts", value=SAMPLES),
        epsilon=1.0,
        probability=0.5,
        window=ap.CountWindow(3),
    )
    assert "window: goes by rows" in text


def test_rows_that_cannot_be_used_say_why() -> None:
    stream = ap.Stream(None, key="id", time="ts", value=SAMPLES)
    good = _row([[0.0, 0.0]])
    question: dict[str, Any] = {"left": stream, "epsilon": 1.0, "probability": 0.5}
    with pytest.raises(ap.BadInput, match="non-finite"):
        ap.explain_pair(good, _row([[float("nan"), 0.0]]), **question)
    with pytest.raises(ap.BadArgument, match="right_row has 2 rows"):
        ap.explain_pair(good, pa.Table.from_pylist([good, good]), **question)
    with pytest.raises(ap.BadArgument, match="Describe the stream"):
        ap.explain_pair(good, good, **(question | {"left": good}))


# --- what is expected of a push ---------------------------------------------------------------------------------


def _clouds(n: int, d: int = 2) -> list[ap.Stream]:
    rng = np.random.default_rng(3)
    tables = [
        pa.table(
            {
                "id": np.arange(n),
                "ts": np.arange(n) / 100,
                "s": (rng.random((n, 8, d)) / 2 + rng.random((n, 1, d)) * 9).tolist(),
            }
        )
        for _ in range(2)
    ]
    return [ap.Stream(table, key="id", time="ts", value=ap.Samples("s")) for table in tables]


def _numbers(text: str, line: str) -> list[float]:
    told = next(one for one in text.splitlines() if one.startswith(line))
    return [float(x.replace(",", "")) for x in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", told)]


@pytest.mark.parametrize("window", [ap.TimeWindow(5), ap.CountWindow(400)])
def test_expected_pairs_and_answers_are_near_the_actual_ones(window: Any) -> None:
    result = ap.similarity_join(*_clouds(4_000), epsilon=1.0, probability=0.3, window=window)
    text = str(ap.explain(result))
    rows, _, _, near, answers = _numbers(text, "expected of")
    assert rows >= 7_900
    assert answers == pytest.approx(len(result), rel=0.5)
    assert near >= answers
    assert _numbers(text, "actual:")[1] == len(result)
    assert "decided: " in text
    assert "microseconds a probe: scan" in text


@pytest.mark.parametrize("window", [ap.TimeWindow(5), ap.CountWindow(400)])
def test_no_row_is_expected_to_be_its_own_partner(window: Any) -> None:
    """Of rows far apart nothing is expected, and each pair of rows in reach is counted once."""
    n = 2_000
    table = pa.table({"id": np.arange(n), "ts": np.arange(n) // 20 / 10, "x": np.arange(n) * 9.0, "y": np.zeros(n)})
    rows = ap.Stream(table, key="id", time="ts", value=ap.Ball("x", "y", radius=0.5, samples=8))
    times = table["ts"].to_numpy()
    gap = times[:, None] - times[None, :]
    in_reach = np.triu(np.abs(gap) <= 5, 1).sum() if isinstance(window, ap.TimeWindow) else 399 * n - 399 * 400 // 2
    result = ap.self_join(rows, epsilon=2.0, probability=0.3, window=window)
    _, _, pairs, near, answers = _numbers(str(ap.explain(result)), "expected of")
    assert (near, answers, len(result)) == (0, 0, 0)
    assert pairs == pytest.approx(in_reach, rel=0.05)


def test_no_row_of_a_whole_table_is_in_reach_of_itself() -> None:
    n = 4_000
    table = pa.table({"id": np.arange(n), "ts": np.arange(n) * 1.0, "x": np.arange(n) * 9.0, "y": np.zeros(n)})
    rows = ap.Stream(table, key="id", time="ts", value=ap.Exact("x", "y"))
    for window, in_reach in ((0.5, 0), (n, n * (n - 1) / 2)):
        result = ap.self_join(rows, epsilon=2.0, probability=1.0, window=window)
        text = str(ap.explain(result))
        assert "cells in order" in text
        assert _numbers(text, "expected of")[2] == in_reach


def test_rows_of_one_time_are_expected_to_meet_once() -> None:
    """In two streams, and in one, of whose rows some may not meet."""
    table = pa.table({"id": np.arange(900), "ts": np.zeros(900), "x": np.zeros(900), "g": np.arange(900) % 2})
    stream, other = (ap.Stream(table, key="id", time="ts", value=ap.Ball("x", radius=0.5, samples=8)) for _ in "ab")
    settings: dict[str, Any] = {"epsilon": 2.0, "probability": 0.3, "window": ap.CountWindow(10_000)}
    for result, found in (
        (ap.similarity_join(stream, other, **settings), 900 * 900),
        (ap.self_join(stream, **settings), 900 * 899 / 2),
        (ap.self_join(stream, **settings, different="g"), 450 * 450),
    ):
        assert len(result) == found
        _, _, pairs, _, answers = _numbers(str(ap.explain(result)), "expected of")
        assert (pairs, answers) == pytest.approx((found, found), rel=0.1)


def test_an_output_that_will_explode_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = _clouds(600)
    question: dict[str, Any] = {"probability": 0.3, "window": ap.TimeWindow(100)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ap.similarity_join(left, right, epsilon=0.5, **question)
    monkeypatch.setattr(output, "MANY", 100_000)
    with pytest.warns(ap.ExplodingOutput, match=r"1,200 rows will have about \d{3},\d{3} answers"):
        ap.similarity_join(left, right, epsilon=20.0, **question)


def test_what_filled_a_row_is_told_with_the_rows_behind_it() -> None:
    known = pa.table({"a": np.arange(20.0) / 10, "b": np.arange(20.0)})
    rule = ap.DifferentialDependency({"a": 0.11}, "b", 9.0)
    stream = ap.Stream(None, key="id", time="ts", value=ap.Incomplete("a", "b"))
    rows = [{"id": 1, "ts": 0, "a": a, "b": b} for a, b in ((0.5, None), (None, 7.0), (0.5, 5.0))]

    def told(left: int, right: int, imputer: object) -> str:
        return ap.explain_pair(rows[left], rows[right], left=stream, epsilon=1.0, probability=0.5, imputer=imputer)

    found = told(0, 1, ap.DependencyImputer(known, [rule]))
    assert "left: b was missing, filled by a(0.11) -> b(9), from 3 rows of the repository: 4, 5, 6\n" in found
    assert "right: a was missing, filled by marginal, from 20 rows of the repository: 0, 1, 2, 3, 4, 5, 6, 7" in found
    assert "8, 9, ...\n" in found
    assert "was missing" not in told(2, 2, ap.DependencyImputer(known, [rule]))
    assert "left: b was missing, filled by mean\n" in told(0, 2, ap.MeanImputer(known))
    # Rows too far apart to be filled at all are told of nevertheless.
    far = ap.explain_pair(
        rows[0],
        {**rows[2], "b": 99.0},
        left=stream,
        epsilon=1.0,
        probability=0.5,
        imputer=ap.DependencyImputer(known, [rule]),
    )
    assert "decided by reach" in far


@pytest.mark.parametrize(
    ("epsilon", "decides"),
    [({"horizontal": 100.0, "vertical": 250.0}, "vertical"), ({"horizontal": 40.0, "vertical": 400.0}, "horizontal")],
)
@pytest.mark.parametrize("error", [{"sigma": 5.0}, {"ellipse": (5.0, 2.0, 30.0)}])
def test_of_a_cylinder_the_way_that_decides_is_named(epsilon: dict[str, float], decides: str, error: Any) -> None:
    """What the vertical one leaves is the probability, where the horizontal one is sure; never less than it."""
    low = {"id": 1, "ts": 0.0, "lat": 50.0, "lon": 10.0, "up": 100.0}
    model = ap.Position("lat", "lon", altitude="up", altitude_sigma=10.0, **error)
    text = _told(low, low | {"id": 2, "lat": 50.0005, "up": 380.0}, model, epsilon=epsilon)
    shares = dict(re.findall(r"(horizontal|vertical) (?:at most )?([0-9.e-]+)[,;]", text))
    (probability,) = re.findall(r"probability: ([0-9.e-]+);", text)
    assert float(shares[decides]) < 0.05
    assert max(map(float, shares.values())) > 0.9
    assert float(shares[decides]) >= float(probability) * (1 - 1e-5)
    assert f"; {decides} decides" in text
    assert ("ellipse of the difference: semi-axes 7.07107 and 2.82843, the first at 30 degrees" in text) == (
        "ellipse" in error
    )
    if decides == "vertical":
        assert float(shares[decides]) == pytest.approx(float(probability), rel=1e-5)


def test_rows_may_be_of_pandas() -> None:
    rows = pd.DataFrame({"id": ["a", "b"], "ts": pd.to_datetime(["2026-01-01", "2026-01-02"]), "x": [0.0, 0.5]})
    settings: dict[str, Any] = {"left": ap.Stream(None, key="id", time="ts", value=ap.Gaussian("x", sigma=0.2))}
    settings |= {"epsilon": 1, "probability": 0.9}
    of_frames = ap.explain_pair(rows.iloc[:1], rows.iloc[1:], **settings)
    assert ap.explain_pair(rows.iloc[0], rows.iloc[1], **settings) == of_frames


def test_by_another_metric_reaches_are_in_a_straight_line() -> None:
    """Those of two points at the corners of a square that a margin makes wide enough."""
    value = ap.Exact("x", "y")
    left, right = ({"id": id_, "ts": 0, "x": x, "y": x} for id_, x in (("a", 0.0), ("b", 3.9)))
    text = ap.explain_pair(
        left,
        right,
        left=ap.Stream(None, key="id", time="ts", value=value),
        right=ap.Stream(None, key="id", time="ts", value=value, margin=3.0),
        epsilon=1.0,
        metric="chebyshev",
        probability=1.0,
    )
    assert "distance of the means: 5.51543 in a straight line; epsilon 4; with both reaches 5.65685\n" in text
    assert "\nan answer; decided by refinement" in text
