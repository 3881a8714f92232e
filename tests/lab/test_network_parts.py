"""Parts of the simulated network: clusters, routes, relevance feedback, filters, the cost model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.errors import BadArgument
from appulse.lab.network import (
    Bloom,
    Clusters,
    Feedback,
    KeySets,
    Observations,
    Quotient,
    Timing,
    Topology,
    centralised,
    cost,
    grid_cells,
    heed,
    simulate,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def scattered(n: int, seed: int) -> Topology:
    return Topology(np.random.default_rng(seed).random((n, 2)))


def distances(clusters: Clusters) -> Any:
    positions = clusters.topology.positions
    return np.linalg.norm(positions - positions[clusters.head[clusters.of]], axis=1)


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (20, 1), (500, 2), (2000, 3)])
def test_heed_gives_everybody_a_head_in_reach(n: int, seed: int) -> None:
    clusters = heed(scattered(n, seed), seed)
    assert (distances(clusters) <= 0.1).all()
    assert (clusters.of[clusters.head] == np.arange(len(clusters))).all()
    assert n < 100 or len(clusters) < 120, "a head for about every cell of a tenth"
    again = heed(scattered(n, seed), seed)
    np.testing.assert_array_equal(clusters.of, again.of)


def test_heed_prefers_nodes_rich_in_energy() -> None:
    topology = scattered(600, 4)
    energy = np.where(np.arange(600) % 2 == 0, 1.0, 0.01)
    heads = np.concatenate([heed(topology, seed, energy=energy).head for seed in range(5)])
    assert (heads % 2 == 0).mean() > 0.65


def test_cells_have_the_node_nearest_their_middle_as_head() -> None:
    topology = Topology(np.array([[0.01, 0.01], [0.045, 0.05], [0.06, 0.05], [0.35, 0.15]]))
    clusters = grid_cells(topology)
    assert clusters.of.tolist() == [0, 0, 0, 1]
    assert clusters.head.tolist() == [1, 3]
    assert clusters.between.tolist() == [[0, 4], [4, 0]]
    assert clusters.tours.tolist() == [[1], [0]]


def test_tours_go_to_the_nearest_head_that_is_left() -> None:
    positions = np.array([[0.0, 0.0], [0.3, 0.0], [0.1, 0.0], [0.9, 0.0]])
    clusters = Clusters(Topology(positions), np.arange(4), np.arange(4))
    assert clusters.tours.tolist() == [[2, 1, 3], [2, 0, 3], [0, 1, 3], [1, 2, 0]]


def test_routes_take_the_links_of_fewest_transmissions() -> None:
    quality = np.array([[0.0, 0.3, 0.9], [0.3, 0.0, 0.9], [0.9, 0.9, 0.0]])
    routed = Topology.by_quality(np.zeros((3, 2)), quality)
    assert routed.hops(np.arange(3), np.arange(3)).tolist() == [[0, 2, 1], [2, 0, 1], [1, 1, 0]]
    with pytest.raises(BadArgument, match="from node 0 to node 1"):
        Topology.by_quality(np.zeros((2, 2)), np.zeros((2, 2)))


def test_a_lab_with_its_measured_links(data: Callable[[str], Path]) -> None:
    """53 motes: hops from the quality of links between them."""
    import pyarrow.parquet as pq

    places = pq.read_table(data("intel_lab/mote_locs.parquet")).to_pandas().set_index("moteid")
    links = pq.read_table(data("intel_lab/connectivity.parquet")).to_pandas().dropna()
    quality = np.zeros((55, 55))
    quality[links["sender_id"], links["receiver_id"]] = links["probability"]
    motes = [mote for mote in range(1, 55) if mote != 5]  # nobody ever heard mote 5
    positions = places.loc[motes, ["x_location", "y_location"]].to_numpy(np.float64)
    topology = Topology.by_quality(positions, quality[np.ix_(motes, motes)], radio=10.0)
    clusters = heed(topology, 1, reach=8.0)
    assert 3 < len(clusters) < 30
    assert 2 <= clusters.between.max() <= 10
    random = np.random.default_rng(1)
    n = 600
    some = Observations(
        random.integers(0, 53, n),
        np.sort(random.integers(0, 60_000_000, n)),
        random.integers(0, 9, n),
        np.full(n, 10**7),
    )
    found, expected = simulate(some, clusters).answers, centralised(some, clusters)
    for one, same in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, same)


def test_places_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(BadArgument, match="radio"):
        Topology(np.zeros((1, 2)), 0.0)
    with pytest.raises(BadArgument, match="wrong order"):
        Timing(hop=(5, 2))


# --- relevance feedback -----------------------------------------------------------------------------------------------


def test_the_printed_rule_is_not_bounded() -> None:
    """From (.5, .5, .5), w = (1, .5, 0) twice gives (1.5, .5, -.5)."""
    feedback = Feedback(4, 1, "printed")
    for _ in range(2):
        feedback.learn(3, 0, np.arange(3), np.array([1.0, 0.5, 0.0]))
    assert feedback.relevance[3, 0].tolist() == [1.5, 0.5, -0.5, 0.5]
    assert feedback.probability(np.array([3]), np.array([0]))[0].tolist()[:3] == [1.0, 0.5 / 1.5, 0.0]


def test_the_printed_probabilities_add_up_to_one() -> None:
    """Of ten other heads each has 0.1, so that 0.349 of probes ask nobody, and not a half each head."""
    feedback = Feedback(11, 2, "printed")
    probability = feedback.probability(np.array([0]), np.array([5]))[0, 1:]
    np.testing.assert_allclose(probability, 0.1)
    chosen = feedback.choose(np.zeros(20_000, np.int64), np.zeros(20_000, np.int64))[:, 1:]
    assert (~chosen.any(axis=1)).mean() == pytest.approx(0.9**10, abs=0.01)


def test_the_corrected_rule_is_held_and_goes_on_exploring() -> None:
    feedback = Feedback(4, 1)
    assert feedback.probability(np.array([0]), np.array([0]))[0].tolist() == [0.5] * 4
    for _ in range(40):
        feedback.learn(0, 64, np.array([1, 2]), np.array([1.0, 0.0]))
    assert feedback.relevance[0, 0].tolist() == [0.5, 1.0, 0.05, 0.5], "bin 64 shares the bucket of 0"
    feedback.learn(0, 0, np.array([2, 3]), np.array([1.0, 1.0]))
    assert feedback.relevance[0, 0, 2] == 0.05, "notes that are all alike change nothing"
    assert Feedback(5, 1, budget=2.0).probability(np.array([0]), np.array([0]))[0, 1] == pytest.approx(0.5)
    with pytest.raises(BadArgument, match="printed"):
        Feedback(2, 1, "new")


# --- filters ----------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(-50, 50)), st.sampled_from([KeySets(), Bloom(), Bloom(2, 1), Quotient(), Quotient(1)]))
def test_a_filter_never_denies_what_is_there(live: set[int], kind: Any) -> None:
    keys = np.arange(-50, 51).astype(np.uint64)
    there = np.array([key in live for key in range(-50, 51)])
    says, size = kind.publish(there, keys, np.zeros(len(keys), bool))
    assert says[there].all()
    assert size >= (8 * len(live) if isinstance(kind, KeySets) else 1)
    if isinstance(kind, KeySets):
        assert (says == there).all()
        assert kind.publish(there, keys, there)[1] == 0, "what has not changed is not sent"


@pytest.mark.parametrize(("kind", "most"), [(Bloom(), 0.02), (Quotient(), 0.01)])
def test_filters_are_rarely_wrong(kind: Any, most: float) -> None:
    keys = np.arange(100_000).astype(np.uint64)
    there = keys < 1000
    says, size = kind.publish(there, keys, ~there)
    assert says[~there].mean() < most
    assert size < 3000


# --- the cost model ---------------------------------------------------------------------------------------------------


def test_the_cost_model_gives_the_figures_of_the_paper() -> None:
    mjoin = [cost.outer_mjoin(load) for load in cost.PAPER]
    snjoin = [cost.snjoin(load) for load in cost.PAPER]
    np.testing.assert_allclose(mjoin, [142.8, 669.1, 1532.7, 2105.5, 2399.8], atol=0.06)
    np.testing.assert_allclose(snjoin, [112.9, 519.3, 1191.3, 1628.3, 1841.9], atol=0.06)
    saving = [100 * (1 - s / m) for m, s in zip(mjoin, snjoin, strict=True)]
    np.testing.assert_allclose(saving, [20.9, 22.4, 22.3, 22.7, 23.2], atol=0.06)


def test_factorised_output_costs_by_its_matches() -> None:
    """No product: it grows by a column a match."""
    few, many = cost.PAPER[0], cost.PAPER[4]
    assert cost.factorised(many, tables=False) < 0.2 * cost.snjoin(many)
    assert cost.factorised(few, tables=False) < cost.factorised(few, tables=True) < cost.factorised(many, tables=True)


def test_the_benchmarks_case_answers_as_one_head() -> None:
    """What `benchmarks/network.py` measures on, small: nothing lost by filters, not every update right by feedback."""
    from benchmarks.network_cases import case, policies, same, updates

    one = case(200, 1, 12.0)
    made = policies(len(one.clusters), 1)
    for name in ("full", "filters"):
        run = one.run(made[name]())
        same(run.answers, one.reference)
        assert one.recall(run) == 1.0
        assert updates(run.answers, one) == updates(one.reference, one)
    some = one.run(made["feedback"]())
    assert 0.9 < one.recall(some) < 1.0
    seen, right = updates(some.answers, one)
    assert right < seen


def test_the_size_of_a_distributed_output() -> None:
    size = cost.distributed_size([10, 5], [0.4, 0.2], [np.array([2.0, 3.0]), np.array([1.5])])
    assert size == pytest.approx((2 * 10 * 0.4 + 2 * 5 * 0.2) * 9.0)
