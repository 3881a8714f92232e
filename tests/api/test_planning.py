"""Plans: what is estimated on some rows is what is then measured, within a factor of 2."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.api import planning
from appulse.engines.planning import Growth, Plan, Step, Stretch, Trial, estimate, most_answers
from appulse.errors import BadArgument


def crowd(seed: int, rows: int = 6_000, keys: int = 600, seconds: float = 600.0) -> pa.Table:
    chance = np.random.default_rng(seed)
    t = np.sort(chance.beta(2, 2, rows) * seconds)
    key = chance.integers(0, keys, rows)
    home = np.random.default_rng(0).uniform(0, 100, (keys, 2))[key]
    x, y = (home + chance.normal(0, 1, (rows, 2))).T
    return pa.table({"k": key, "t": t, "x": x, "y": y, "p": chance.uniform(0.4, 1, rows)})


def scans(n: int) -> pa.Table:
    """500 rows at a time, 10 seconds apart."""
    chance = np.random.default_rng(7)
    place = chance.uniform(0, 100, (2, 500 * n))
    return pa.table({"k": list(range(500)) * n, "t": np.repeat(np.arange(n) * 10.0, 500), "x": place[0], "y": place[1]})


def stream(**more: Any) -> Any:
    return ap.Stream(None, key="k", time="t", value=ap.Gaussian("x", "y", sigma=0.5), **more)


WITHIN: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5}
FENCES = pa.table({"query": ["a"], "region": ["POLYGON((10 10, 60 10, 60 60, 10 60, 10 10))"]})


def matching() -> Any:
    queries = ap.QueryMatch(stream(), probability=0.5)
    queries.change(pa.table({"query": ["a", "b"], "condition": ["x > 50", "x BETWEEN 1 AND 20 AND y < 30"]}))
    return queries


CALLS: dict[str, Any] = {
    "join": lambda: ap.SimilarityJoin(stream(), stream(), **WITHIN, window="30 seconds"),
    "self-join": lambda: ap.SimilarityJoin(stream(lateness=5), **WITHIN, window="30 seconds", different="k"),
    "count window": lambda: ap.SimilarityJoin(stream(), stream(), **WITHIN, window=ap.CountWindow(200)),
    "uncertain window": lambda: ap.SimilarityJoin(
        stream(existence="p"), stream(existence="p"), **WITHIN, window=ap.UncertainCountWindow(100, 0.9)
    ),
    "queries": matching,
    "fences": lambda: ap.FenceEvents(stream(lateness="10 seconds"), FENCES),
    "encounters": lambda: ap.Encounters(stream(motion=ap.Straight("1 minute")), **WITHIN),
    "nearest": lambda: ap.Nearest(stream(), stream(), 2, epsilon=2.0, window="10 seconds"),
    "outliers": lambda: ap.Outliers(stream(), epsilon=2.0, fewer_than=3, probability=0.5, window="20 seconds"),
    "aggregate": lambda: ap.WindowAggregate(stream(), {"x": "mean"}, window="20 seconds"),
}


def measured(call: Any, tables: dict[str, pa.Table]) -> tuple[int, int, float]:
    begin, end = (f(f(table["t"].to_pylist()) for table in tables.values()) for f in (min, max))
    edges = np.linspace(begin, end + 1e-6, 61)
    held = size = answers = 0
    for low, high in pairwise(edges):
        parts = {}
        for name, table in tables.items():
            first, last = np.searchsorted(table["t"].to_numpy(), [low, high])
            parts[name] = table.slice(first, last - first)
        answers += len(call.push(**parts))
        held, size = max(held, call.state()["state_rows"]), max(size, call.state()["state_bytes"])
    return held, size, answers / (end - begin)


def within_factor(guess: float, truth: float, factor: float = 2.0) -> bool:
    return truth / factor <= guess <= truth * factor


def trips(seed: int) -> pa.Table:
    """Eight people over three weeks, who move for an hour or two twice a day; now and then two of them go together."""
    chance, parts = np.random.default_rng(seed), []
    for day in range(21):
        for who in range(8):
            for _ in range(2):
                begin = day * 86_400.0 + chance.uniform(7, 20) * 3_600
                t = np.arange(begin, begin + chance.uniform(0.5, 2) * 3_600, chance.choice([2.0, 5.0, 15.0]))
                way = np.cumsum(chance.normal(0, 2, (2, len(t))), axis=1) + chance.uniform(0, 5_000, (2, 1))
                for one in (who, *([(who + 1) % 8] if chance.random() < 0.06 else [])):
                    x, y = way + chance.normal(0, 0.2, way.shape)
                    parts.append(pa.table({"k": np.full(len(t), one), "t": t, "x": x, "y": y}))
    made = pa.concat_tables(parts).sort_by("t")
    return made.append_column("n", pa.array(range(len(made))))


@pytest.mark.parametrize(
    ("seed", "key", "batch"),
    [(1, "k", None), (2, "n", None), (3, "n", 2 * 86_400_000_000), (4, "k", 2 * 86_400_000_000)],
)
def test_rows_that_come_in_bursts_are_planned_by_these(seed: int, key: str, batch: int | None) -> None:
    """Not by the long silences between them, however long a micro-batch is."""
    rows = trips(seed)
    value = ap.Gaussian("x", "y", sigma=0.5)

    def call() -> Any:
        own = ap.Stream(None, key=key, time="t", value=value, name="people")
        return ap.SimilarityJoin(own, epsilon=3.0, probability=0.5, window="1 minute", different="k")

    supply = planning._Frames(call(), rows)
    supply.batch = batch
    plan = planning.planned(call(), supply)
    one, held, answers = call(), 0, 0
    for at in range(0, len(rows), 100):
        answers += len(one.push(rows.slice(at, 100)))
        held = max(held, one.state()["state_rows"])
    seconds = rows["t"][-1].as_py() - rows["t"][0].as_py()
    assert len(rows) > 40_000
    assert within_factor(plan.state_rows, held, 1.3), (plan, held)
    assert within_factor(plan.answers_per_second, answers / seconds), (plan, answers / seconds)
    assert plan.peak_answers_per_second > 2 * plan.answers_per_second


@pytest.mark.parametrize("thinned", [False, True])
@pytest.mark.parametrize("kind", CALLS)
def test_a_plan_is_within_a_factor_of_two(kind: str, *, thinned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if thinned:  # on some of the keys
        monkeypatch.setattr("appulse.api.planning.MOST_ROWS", 1_500)
    call = CALLS[kind]()
    tables = {name: crowd(i) for i, name in enumerate(call.streams, 1)}
    plan = ap.plan(call, tables)
    held, size, answers = measured(call, tables)
    assert within_factor(plan.state_rows, held), (plan, held)
    assert within_factor(plan.state_bytes, size, 2.0 if not thinned else 3.0), (plan, size)
    assert within_factor(plan.answers_per_second, answers), (plan, answers)
    assert plan.fits


def test_declared_rates_count_by_the_row_and_by_the_pair() -> None:
    join = CALLS["self-join"]()
    once, twice = ap.plan(join, crowd(1)), ap.plan(join, crowd(1), rate=20.0)
    assert twice.rate == pytest.approx(2 * once.rate, rel=0.03)
    assert twice.state_rows == pytest.approx(2 * once.state_rows, rel=0.03)
    assert twice.answers_per_second == pytest.approx(4 * once.answers_per_second, rel=0.06)
    by_name = ap.plan(CALLS["join"](), {"left": crowd(1), "right": crowd(2)}, rate={"left": 30.0})
    assert by_name.rate == pytest.approx(40.0, rel=0.02)


def test_what_does_not_fit_is_said_with_the_number() -> None:
    join = CALLS["self-join"]()
    plan = ap.plan(join, crowd(1), rate=1e6, memory=1e9, cores=2)
    assert not plan.fits
    assert [why.split(" of ")[0].split(" for ")[0] for why in plan.refusals] == [
        f"it needs {plan.memory / 1e9:.{0 if plan.memory >= 1e11 else 1}f} GB",
        f"it needs {plan.cores} cores",
    ]
    assert "does not fit" in str(plan)
    assert "does not fit" in plan._repr_html_()
    assert plan.as_dict()["fits"] is False


def test_the_call_stays_as_it_is_and_may_not_have_begun() -> None:
    queries = CALLS["queries"]()
    ap.plan(queries, crowd(1))
    assert not queries.started
    assert len(queries.push(crowd(1))) == len(copy.copy(matching()).push(crowd(1)))
    with pytest.raises(BadArgument, match="Rows were pushed to the call"):
        ap.plan(queries, crowd(1))


@pytest.mark.parametrize(
    ("sample", "more", "said"),
    [
        (crowd(1).slice(0, 0), {}, "no rows with a time"),
        ({"left": crowd(1)}, {}, "no rows of the stream 'right'"),
        ({"lift": crowd(1)}, {}, "names 'lift', which is not a stream. Did you mean 'left'"),
        (crowd(1), {"rate": {"lef": 1.0}}, "rate= names 'lef'"),
        (crowd(1).drop_columns(["t"]), {}, "no column 't'"),
        (scans(1), {}, "All rows of the sample are of one time"),
        ({"left": scans(1), "right": scans(1)}, {"rate": {"left": 5.0}}, "rate= of every stream"),
        (crowd(1), {"engine": "flink"}, "engine='flink'"),
    ],
)
def test_what_cannot_be_planned_is_an_error(sample: Any, more: dict[str, Any], said: str) -> None:
    two = isinstance(sample, dict)
    call = CALLS["join" if two else "self-join"]()
    with pytest.raises(BadArgument, match=said):
        ap.plan(call, sample, **more)


def test_a_sample_shorter_than_a_window_is_drawn_out() -> None:
    join = ap.SimilarityJoin(stream(), **WITHIN, window="1 hour")
    plan = ap.plan(join, crowd(1))
    assert not plan.steady
    assert plan.state_rows == pytest.approx(36_000, rel=0.05)
    assert "drawn out" in plan.notes[0]
    assert not any("are guesses" in note for note in plan.notes)
    assert "cores, and rows a second and core, are guesses" in ap.plan(join, crowd(1), rate=1e6).notes[-1]


@pytest.mark.parametrize("n", [1, 2, 3, 8, 30])
def test_few_scans_have_the_rate_of_many(n: int) -> None:
    """Of a single one it is declared."""
    join = ap.SimilarityJoin(stream(), epsilon=4.0, probability=0.5, window="60 seconds")
    plan = ap.plan(join, scans(n), rate=50.0 if n == 1 else None, memory=1e9, cores=1)
    assert (plan.rate, plan.peak_rate) == pytest.approx((50, 50))
    assert plan.state_rows == pytest.approx(3_000, rel=0.17)  # six scans, or seven at either end
    assert within_factor(plan.answers_per_second, ap.plan(join, scans(30)).answers_per_second)
    assert 0 < plan.rows_per_core < float("inf")
    assert plan.fits
    assert n >= 8 or "and the sample is of " + f"{10 * n} seconds" in plan.notes[0]
    twice = ap.plan(join, scans(n), rate=100.0)
    assert twice.state_rows == pytest.approx(2 * plan.state_rows, rel=0.01)


def test_the_rate_of_each_stream_of_a_single_scan_is_as_declared() -> None:
    rates = {"left": 10.0, "right": 30.0}
    plan = ap.plan(CALLS["join"](), {name: scans(1) for name in rates}, rate=rates)
    assert plan.rate == pytest.approx(40)
    assert plan.state_rows == pytest.approx(40 * 30, rel=0.01)
    with pytest.raises(BadArgument, match="Give rows of several times"):
        ap.plan(CALLS["count window"](), {name: scans(1) for name in rates}, rate=40.0)
    assert ap.plan(CALLS["count window"](), {name: scans(2) for name in rates}).state_rows == 400


def test_the_mean_of_the_lesser_of_k_and_a_poisson_number() -> None:
    chance = np.random.default_rng(3)
    for mean, k in ((0.3, 1), (2.0, 3), (9.0, 2)):
        drawn = np.minimum(chance.poisson(mean, 200_000), k).mean()
        assert most_answers(mean, k) == pytest.approx(drawn, rel=0.02)


def timed(cost: Any, held: Any, rate: float) -> Plan:
    """The plan of steps of 100 rows a second with such costs (microseconds a row), at so many rows a second."""
    steps = [Step((100,), int(n), 80 * int(n), 0, 0, 1e-4 * each) for n, each in zip(held, cost, strict=True)]
    stretch = Stretch(steps, float(len(steps)), (1.0,), (100.0,), len(steps) // 2)
    return estimate("call", "process", Trial(stretch, (), np.array([[100.0]]), 1, 6.0, True), Growth(), rates=[rate])


@pytest.mark.parametrize("seed", range(20))
def test_costs_rise_with_what_is_held_only_where_they_are_seen_to(seed: int) -> None:
    """500 times as many rows will be held as were."""
    chance, held = np.random.default_rng(seed), np.minimum(np.arange(1, 25) * 100, 600)
    noise = chance.lognormal(0, 0.3, len(held))
    assert timed(10 * noise, held, 50_000.0).rows_per_core == pytest.approx(1e5, rel=0.4)
    rising = timed((10 + 0.1 * held) * chance.normal(1, 0.02, len(held)), held, 50_000.0)
    assert rising.state_rows == 300_000
    assert rising.rows_per_core == pytest.approx(1e6 / (10 + 0.1 * 300_000), rel=0.4)


def test_costs_of_few_steps_are_their_mean() -> None:
    assert timed([9, 10, 20, 30], [0, 100, 200, 300], 100.0).rows_per_core == pytest.approx(5e4)
