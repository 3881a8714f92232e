"""One partner each: the greatest sum of all choices there are, block by block, and what each pair adds to it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.kernels.assignment import margins
from appulse.operators.assignment import Gains, assigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Gain = tuple[int, float]  # how infinite, and what else
Pair = tuple[int, int, Gain]  # a left row, a right row, and what the pair gains
ASSIGN: Any = ap.assign


def total(gains: Iterable[Gain]) -> Gain:
    """The sum of some gains."""
    known = list(gains)
    return sum(order for order, _ in known), math.fsum(gain for _, gain in known)


def best_of(pairs: Sequence[Pair]) -> Gain:
    """The greatest sum of gains in which no row is twice, by trying everything; what is more infinite is more."""
    if not pairs:
        return 0, 0.0
    (left, right, gain), rest = pairs[0], pairs[1:]
    without = best_of(rest)
    return max(without, total([gain, best_of([one for one in rest if one[0] != left and one[1] != right])]))


def loss_of(pairs: Sequence[Pair], at: int) -> float:
    """How much the greatest sum falls without one of the pairs."""
    (order, gain), (rest_order, rest) = best_of(pairs), best_of([*pairs[:at], *pairs[at + 1 :]])
    return math.inf if order > rest_order else gain - rest


graphs = st.dictionaries(
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.integers(-2, 9) | st.floats(-1.0, 9.0)),
    max_size=12,
)


@settings(max_examples=150)
@given(graphs, st.sampled_from([0, 128]))
def test_the_sum_is_the_greatest_and_margins_are_what_it_loses(graph: dict[tuple[int, int], Gain], dense: int) -> None:
    pairs = [(i, j, (order, float(gain))) for (i, j), (order, gain) in graph.items()]
    left, right = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    order, gain = np.array([pair[2][0] for pair in pairs], np.int64), np.array([pair[2][1] for pair in pairs])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("appulse.operators.assignment._DENSE", dense)  # so that both solvers are asked
        chosen, margin = assigned(left, right, Gains(gain, order), greedy=False, most=100, counts=Counter())
    assert len(set(left[chosen])) == len(chosen) == len(set(right[chosen]))
    greatest = best_of(pairs)
    assert order[chosen].sum() == greatest[0]
    assert math.isclose(gain[chosen].sum(), greatest[1], abs_tol=1e-9)
    for at, loss in zip(chosen.tolist(), margin.tolist(), strict=True):
        assert math.isclose(loss, loss_of(pairs, at), abs_tol=1e-9)
    taken, best = set[tuple[int, int]](), sorted(pairs, key=lambda pair: (*(-one for one in pair[2]), *pair[:2]))
    for i, j, known in best:
        if known > (0, 0.0) and all(i != a and j != b for a, b in taken):
            taken.add((i, j))
    chosen, _ = assigned(left, right, Gains(gain, order), greedy=True, most=0, counts=Counter())
    assert set(zip(left[chosen].tolist(), right[chosen].tolist(), strict=True)) == taken


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(2, 40), st.integers(2, 40), st.floats(0.05, 1.0))
def test_margins_of_larger_graphs_are_what_solving_again_loses(seed: int, n: int, m: int, share: float) -> None:
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(seed)
    gains = np.where(rng.random((n, m)) < share, rng.random((n, m)) + 0.01, 0.0)
    if seed % 2:
        gains = np.ceil(3 * gains)  # many ties
    ours, theirs = linear_sum_assignment(gains, maximize=True)
    taken = np.zeros((n, m), bool)
    taken[ours, theirs] = True
    left, right = (np.ascontiguousarray(side) for side in np.nonzero(gains))
    gain, chosen = gains[left, right], taken[left, right]
    found = margins(left, right, gain, chosen, n, m)
    greatest = gain[chosen].sum()
    for at in np.flatnonzero(chosen)[:5]:
        without = gains.copy()
        without[left[at], right[at]] = 0.0
        assert math.isclose(
            found[at], greatest - without[linear_sum_assignment(without, maximize=True)].sum(), abs_tol=1e-9
        )


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e12])
def test_equal_ways_do_not_go_around_without_end(scale: float) -> None:
    """On a grid many choices have the same sum, but for rounding."""
    from scipy.optimize import linear_sum_assignment

    for seed in range(40):
        rng = np.random.default_rng(seed)
        ours, theirs = (np.round(rng.random((int(n), 2)) * 5) / 5 + 0.1 for n in rng.integers(2, 40, 2))
        gains = scale * (1.5 - np.hypot(*(ours[:, None] - theirs[None]).transpose(2, 0, 1)))
        gains = np.where(rng.random(gains.shape) < 0.6, gains, 0.0)
        left, right = (np.ascontiguousarray(side) for side in np.nonzero(gains))
        chosen, lost = assigned(left, right, Gains(gains[left, right]), greedy=False, most=100, counts=Counter())
        greatest = gains[left, right][chosen].sum()
        for at, loss in list(zip(chosen.tolist(), lost.tolist(), strict=True))[:5]:
            without = gains.copy()
            without[left[at], right[at]] = 0.0
            rest = without[linear_sum_assignment(without, maximize=True)].sum()
            assert math.isclose(loss, greatest - rest, abs_tol=1e-9 * scale)


@st.composite
def scans(draw: st.DrawFn, /, spread: bool = True) -> tuple[list[pa.Table], dict[str, Any]]:
    """Tracks and echoes in a few blocks, some of one partition and some of another, and what is asked of them."""
    tables = []
    for first in (0, 100):
        n = draw(st.integers(0, 9))
        sizes, errors = st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([0.0, 0.0, 0.5])
        row = st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 6), st.sampled_from("ab"), sizes, errors)
        rows = draw(st.lists(row, min_size=n, max_size=n))
        columns = list(zip(*rows, strict=True)) if rows else [()] * 6
        kinds = [pa.float64()] * 3 + [pa.string(), pa.float64(), pa.float64()]
        named = {name: pa.array(list(own), kind) for name, own, kind in zip("txygms", columns, kinds, strict=True)}
        tables.append(pa.table({"k": pa.array(range(first, first + n), pa.int64()), **named}))
    by = draw(st.sampled_from(["likelihood", "probability", "distance"]))
    window = draw(st.sampled_from(["tick", ap.TumblingWindow("4 seconds"), ap.TumblingWindow("100 seconds")]))
    asked = {"epsilon": 3.0, "probability": draw(st.sampled_from([0.1, 0.6])), "window": window, "by": by}
    asked |= {"density": draw(st.sampled_from([0.01, 0.2]))} if by == "likelihood" else {}
    asked["how"] = draw(st.sampled_from(["inner", "left", "right", "full", "left_anti"]))
    asked |= {"margin": "m"} if (wide := draw(st.booleans())) else {}
    if by != "distance" and not wide and draw(st.booleans()):
        asked["epsilon"] = {"x": 3.0, "y": 1.0}
    return tables, asked | {"sigma": draw(st.sampled_from([0.5, 1.0, "s"])), "grouped": draw(st.booleans()) and spread}


def streams(frames: Iterable[Any], sigma: float | str, *, grouped: bool, **more: Any) -> list[Any]:
    value = ap.Gaussian("x", "y", sigma=sigma)
    names = ("tracks", "echoes")
    parts: Any = {"partition_by": "g"} if grouped else {}
    return [
        ap.Stream(frame, key="k", time="t", value=value, name=name, **parts, **more)
        for frame, name in zip(frames, names, strict=True)
    ]


def block_of(time: float, window: Any) -> float:
    return time if window == "tick" else time // float(str(window.length).split()[0])


def gain_of(pair: dict[str, Any], left: dict[str, Any], right: dict[str, Any], asked: dict[str, Any]) -> Gain | None:
    """What a pair of the join gains; None where that is nothing, as its rows have no error and are apart."""
    if asked["by"] == "probability":
        return 0, pair["probability"]
    if asked["by"] == "distance":
        return 0, asked["epsilon"] + (left["m"] + right["m"] if "margin" in asked else 0.0) - pair["distance"]
    if pair["log_likelihood_ratio"] is not None:
        return 0, pair["log_likelihood_ratio"]
    assert left["s"] == right["s"] == 0.0
    together = (left["x"], left["y"]) == (right["x"], right["y"])
    return (2, -math.log(2.0 * math.pi * asked["density"])) if together else None


def check(found: Sequence[dict[str, Any]], tables: Sequence[pa.Table], asked: dict[str, Any]) -> None:
    """In each block the greatest sum of the gains of its pairs, margins, and the rows that are left."""
    rows = [{row["k"]: row for row in table.to_pylist()} for table in tables]
    own = of_streams(asked)
    likely = asked["by"] == "likelihood"
    every: Any = ap.similarity_join
    pairs = every(
        *streams(tables, **own),
        epsilon=asked["epsilon"],
        probability=asked["probability"],
        window=1000,
        likelihood=likely,
        **({"density": asked["density"]} if likely else {}),
    ).to_pylist()
    blocks: dict[Any, list[Pair]] = defaultdict(list)
    for pair in pairs:
        left, right = (rows[side][pair[f"{name}_key"]] for side, name in enumerate(("left", "right")))
        if block_of(left["t"], asked["window"]) != block_of(right["t"], asked["window"]):
            continue
        gain = gain_of(pair, left, right, asked)
        if gain is None:
            continue
        block = block_of(left["t"], asked["window"]), left["g"] if own["grouped"] else None
        blocks[block].append((left["k"], right["k"], gain))
    chosen = [row for row in found if row["left_key"] is not None and row.get("right_key") is not None]
    if asked["how"] != "left_anti":
        assert len({row["left_key"] for row in chosen}) == len(chosen) == len({row["right_key"] for row in chosen})
        taken = {(row["left_key"], row["right_key"]): row for row in chosen}
        assert set(taken) <= {(left, right) for own_pairs in blocks.values() for left, right, _ in own_pairs}
        for own_pairs in blocks.values():
            order, gained = total(gain for left, right, gain in own_pairs if (left, right) in taken)
            greatest = best_of(own_pairs)
            assert order == greatest[0]
            assert math.isclose(gained, greatest[1], abs_tol=1e-6)
            for at, (left, right, (infinite, ratio)) in enumerate(own_pairs):
                if (row := taken.get((left, right))) is not None:
                    assert math.isclose(row["margin"], loss_of(own_pairs, at), abs_tol=1e-6)
                    if likely:
                        assert row["log_likelihood_ratio"] == (None if infinite else pytest.approx(ratio, abs=1e-9))
    lone = [[row[f"{side}_key"] for row in found if row.get(f"{other}_key") is None] for side, other in _SIDES]
    if asked["how"] == "left_anti":
        return
    told = asked["how"] in ("left", "full"), asked["how"] in ("right", "full")
    for side, (name, _) in enumerate(_SIDES):
        rest = set(rows[side]) - {row[f"{name}_key"] for row in chosen}
        assert sorted(lone[side]) == (sorted(rest) if told[side] else [])


_SIDES = (("left", "right"), ("right", "left"))


_OF_STREAMS = ("sigma", "grouped", "margin")


def of_streams(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name in _OF_STREAMS}


def arguments(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name not in _OF_STREAMS}


@settings(max_examples=80)
@given(scans())
def test_each_block_has_the_greatest_sum(scan: tuple[list[pa.Table], dict[str, Any]]) -> None:
    tables, asked = scan
    found = ASSIGN(*streams(tables, **of_streams(asked)), **arguments(asked))
    check(found.to_pylist(), tables, asked)
    if asked["how"] == "left_anti":
        full = ASSIGN(*streams(tables, **of_streams(asked)), **arguments(asked | {"how": "left"}))
        lone = [row["left_key"] for row in full.to_pylist() if row["right_key"] is None]
        assert sorted(found["left_key"].to_pylist()) == sorted(lone)


@given(scans(), st.data())
def test_pushed_in_any_cut_a_block_is_answered_once_it_has_ended(
    scan: tuple[list[pa.Table], dict[str, Any]], data: st.DataObject
) -> None:
    tables, asked = scan
    by_hand = ap.Assign(*streams([None, None], **of_streams(asked), lateness=100), **arguments(asked))
    rows = [(side, i) for side, table in enumerate(tables) for i in range(len(table))]
    order = data.draw(st.permutations(rows))
    found, cut = [], data.draw(st.integers(1, 5))
    for begin in range(0, len(order) + 1, cut):
        part = [[i for side, i in order[begin : begin + cut] if side == own] for own in (0, 1)]
        found += by_hand.push(
            tracks=tables[0].take(pa.array(part[0], pa.int64())), echoes=tables[1].take(pa.array(part[1], pa.int64()))
        ).to_pylist()
    assert not found  # a hundred seconds late they may still come
    found += by_hand.drain().to_pylist()
    assert by_hand.rejects().num_rows == 0
    check(found, tables, asked)


def test_a_block_is_answered_in_the_push_that_ends_it() -> None:
    def table(t: float) -> pa.Table:
        return pa.table({"k": [1], "t": [t], "x": [0.0], "y": [0.0]})

    by_hand = ap.Assign(
        *streams([None, None], 1.0, grouped=False),
        epsilon=3,
        probability=0.1,
        window=ap.TumblingWindow("10 seconds"),
        density=0.01,
    )
    assert len(by_hand.push(tracks=table(1.0), echoes=table(2.0))) == 0
    assert len(by_hand.push(tracks=table(9.9), echoes=table(9.9))) == 0
    assert len(by_hand.push(tracks=table(10.0), echoes=table(9.95))) == 0
    assert len(by_hand.push(tracks=table(10.0), echoes=table(10.0))) == 2
    assert len(by_hand.drain()) == 1


def test_two_tracks_do_not_share_an_echo() -> None:
    """Each is nearest to the same echo; what fits both together is another choice."""
    left = pa.table({"k": ["a", "b"], "t": [0.0, 0.0], "x": [0.0, 2.0], "y": [0.0, 0.0]})
    right = pa.table({"k": ["p", "q"], "t": [0.0, 0.0], "x": [1.2, -1.5], "y": [0.0, 0.0]})
    value = ap.Gaussian("x", "y", sigma=1)
    asked: Any = {"epsilon": 5, "probability": 0.1, "window": "tick", "density": 0.001}
    both: Any = [ap.Stream(one, key="k", time="t", value=value) for one in (left, right)]
    nearest = ap.nearest(*both, epsilon=5, window=1)
    assert nearest["right_key"].to_pylist() == ["p", "p"]
    found = ap.assign(*both, **asked).sort_by("left_key")
    assert found["right_key"].to_pylist() == ["q", "p"]
    greedy = ap.assign(*both, **asked, method="greedy").sort_by("left_key")
    assert greedy["right_key"].to_pylist() == ["q", "p"]
    assert greedy["margin"].null_count == 2
    assert str(ap.explain(found)).endswith("components: 1, the largest of 4 rows")


def test_the_density_is_estimated_by_what_a_block_holds() -> None:
    """Three right rows in a box of 20 by 10 (6 at least: epsilon is 3)."""
    left = pa.table({"k": [1], "t": [0.0], "x": [0.0], "y": [0.0]})
    right = pa.table({"k": [7, 8, 9], "t": [0.0] * 3, "x": [1.0, 20.0, 10.0], "y": [0.0, 2.0, 10.0]})
    value = ap.Gaussian("x", "y", sigma=1)
    both: Any = [ap.Stream(one, key="k", time="t", value=value) for one in (left, right)]
    asked: Any = {"epsilon": 3, "probability": 0.1, "window": "tick"}
    (found,) = ap.assign(*both, **asked).to_pylist()
    (given_,) = ap.assign(*both, **asked, density=3 / 200).to_pylist()
    assert found["log_likelihood_ratio"] == pytest.approx(given_["log_likelihood_ratio"], abs=1e-12)
    assert found["log_likelihood_ratio"] == pytest.approx(-0.25 - math.log(4 * math.pi) - math.log(3 / 200), abs=1e-12)


def test_the_density_on_earth_is_by_the_area_that_rows_span() -> None:
    """Across the 180th meridian, too: 2 degrees of longitude there, not 358."""
    places = [[0.0, 179.0], [0.0, -179.0], [1.0, 180.0]]
    lat, lon = map(list, zip(*places, strict=True))
    right = pa.table({"k": [7, 8, 9], "t": [0.0] * 3, "lat": lat, "lon": lon})
    value = ap.Position("lat", "lon", sigma=100, earth="sphere")
    both: Any = [ap.Stream(one, key="k", time="t", value=value) for one in (right.slice(0, 1), right)]
    asked: Any = {"epsilon": 1000, "probability": 0.5, "window": "tick"}
    (found,) = ap.assign(*both, **asked).to_pylist()
    degree = math.radians(1) * 6_371_008.8
    density = 3 / (2 * degree * math.cos(math.radians(0.5)) * degree)
    expected = -math.log(2 * math.pi * 2 * 100**2) - math.log(density)
    assert found["log_likelihood_ratio"] == pytest.approx(expected, rel=1e-9)


def test_components_have_a_limit() -> None:
    n = 30
    rows = pa.table({"k": range(n), "t": [0.0] * n, "x": [i / n for i in range(n)], "y": [0.0] * n})
    both = streams([rows, rows], 1.0, grouped=False)
    asked: Any = {"epsilon": 3, "probability": 0.1, "window": "tick", "density": 0.001}
    with pytest.raises(ap.BadArgument, match="component of the assignment has 60 rows"):
        ap.assign(*both, **asked, options=ap.Options(max_component=59))
    assert len(ap.assign(*both, **asked, options=ap.Options(max_component=60))) == n
    assert len(ap.assign(*both, **asked, method="greedy", options=ap.Options(max_component=2))) == n


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"window": ap.TumblingWindow(5)}, "'tick', or blocks of time"),
        ({"window": "1 minute"}, "'tick', or blocks of time"),
        ({"value": ap.Exact("x")}, "by='likelihood' takes normal errors"),
        ({"by": "distance", "density": 1.0}, "density=1"),
        ({"by": "nearest"}, "by="),
        ({"method": "hungarian"}, "method="),
    ],
)
def test_what_makes_no_sense_is_an_error(asked: dict[str, Any], words: str) -> None:
    rows = pa.table({"k": [1], "t": [0.0], "x": [0.0]})
    value = asked.get("value", ap.Gaussian("x", sigma=1))
    both = [ap.Stream(rows, key="k", time="t", value=value) for _ in range(2)]
    settings: dict[str, Any] = {"epsilon": 1, "probability": 0.5, "window": "tick"} | asked
    settings.pop("value", None)
    with pytest.raises(ap.BadArgument, match=words):
        ap.assign(*both, **settings)
