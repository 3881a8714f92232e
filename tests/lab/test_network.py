"""The simulated network: what heads find together is what one head would, whatever clocks, delays and orders are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appulse.errors import BadArgument
from appulse.lab.network import (
    Bloom,
    Clusters,
    Feedback,
    Filters,
    KeySets,
    Observations,
    Outcome,
    Quotient,
    Settings,
    Sizes,
    Timing,
    Topology,
    centralised,
    simulate,
)
from tests.helpers import naive_sensors as naive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.lab.network import Assembled

MS = 1000
NODES = 7


def observations_of(rows: list[tuple[int, int, int]], window: int | list[int]) -> Observations:
    """From (time, sensor, bin)."""
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    of_sensor = np.broadcast_to(np.array(window, np.int64), NODES)
    return Observations(columns[1], columns[0], columns[2], of_sensor[columns[1]])


def clusters_of(of: list[int]) -> Clusters:
    """Nodes on a line, each cluster headed by its last node."""
    _, cluster = np.unique(of, return_inverse=True)
    head = np.array([np.flatnonzero(cluster == c).max() for c in range(cluster.max() + 1)])
    order = np.argsort(head)
    place = np.argsort(order)
    positions = np.column_stack([np.arange(float(len(of))), np.zeros(len(of))])
    return Clusters(Topology(positions, radio=1.5), place[cluster], head[order])


def listed(answers: Assembled) -> list[naive.Answer]:
    return [
        naive.Answer(
            int(probe),
            [
                (int(answers.sensor[g]), answers.time[answers.begin[g] : answers.begin[g + 1]].tolist())
                for g in range(answers.first[k], answers.first[k + 1])
            ],
        )
        for k, probe in enumerate(answers.probe.tolist())
    ]


def by_twin(some: Observations, clusters: Clusters) -> list[naive.Answer]:
    """The slow twin, with sensors in the order (head, sensor)."""
    names = [(int(clusters.head[clusters.of[node]]), node) for node in range(len(clusters.of))]
    readings = [naive.Reading(names[s], t, float(b)) for s, t, b in zip(*map(np.ndarray.tolist, some[:3]), strict=True)]
    windows = {names[s]: w for s, w in zip(some.sensor.tolist(), some.window.tolist(), strict=True)}
    answers = naive.sensor_join(readings, windows)
    return [naive.Answer(probe, [(name[1], times) for name, times in matches]) for probe, matches in answers]


class Some:
    """Each head for each reading by the toss of a coin."""

    notes = False

    def __init__(self, heads: int, seed: int) -> None:
        self._heads, self._random = heads, np.random.default_rng(seed)
        self.chosen: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []

    def choose(self, head: NDArray[np.int64], bins: NDArray[np.int64]) -> NDArray[np.bool_]:
        wanted = self._random.random((len(head), self._heads)) < 0.5
        self.chosen.append((bins, wanted))
        return wanted

    def learn(self, head: int, bin_: int, probed: NDArray[np.int64], weight: NDArray[np.float64]) -> None:
        raise AssertionError((head, bin_, probed, weight))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Observations, Clusters, Settings]:
    unit = draw(st.sampled_from([100 * MS, 1000 * MS]))
    row = st.tuples(st.integers(0, 15), st.integers(0, NODES - 1), st.integers(0, 2))
    rows = [(unit * time, sensor, bin_) for time, sensor, bin_ in draw(st.lists(row, min_size=1, max_size=40))]
    window = [unit * w for w in draw(st.lists(st.integers(0, 9), min_size=NODES, max_size=NODES))]
    clusters = clusters_of(draw(st.lists(st.integers(0, 3), min_size=NODES, max_size=NODES)))
    timing = Timing(
        round=draw(st.sampled_from([20, 100, 700])) * MS,
        hop=draw(st.sampled_from([(0, MS), (0, 50 * MS), (400 * MS, 400 * MS)])),
        report=draw(st.sampled_from([0, 200, 1500])) * MS,
        skew=draw(st.sampled_from([0, 30, 600])) * MS,
        each_hop=draw(st.booleans()),
    )
    return observations_of(rows, window), clusters, Settings(timing, draw(st.integers(0, 99)))


@given(cases())
def test_all_heads_together_answer_as_one_would_and_as_the_twin(case: tuple[Observations, Clusters, Settings]) -> None:
    some, clusters, how = case
    outcome = simulate(some, clusters, settings=how)
    assert len(outcome.late) == len(outcome.shed) == 0
    assert listed(outcome.answers) == listed(centralised(some, clusters)) == by_twin(some, clusters)


@given(cases(), st.sampled_from([KeySets(), Bloom(4, 2), Quotient(1)]), st.integers(1, 12))
def test_filters_lose_nothing(case: tuple[Observations, Clusters, Settings], kind: Any, every: int) -> None:
    """Nor do ones that are often wrong."""
    some, clusters, how = case
    outcome = simulate(some, clusters, Filters(kind, every), how)
    assert listed(outcome.answers) == listed(centralised(some, clusters))


@given(cases(), st.integers(0, 99))
def test_fewer_heads_give_projections(case: tuple[Observations, Clusters, Settings], seed: int) -> None:
    """Of each answer some sensors, each with all its times, in the same order."""
    some, clusters, how = case
    whole = {answer.probe: answer.matches for answer in listed(centralised(some, clusters))}
    for probe, matches in listed(simulate(some, clusters, Some(len(clusters), seed), how).answers):
        assert matches == [match for match in whole[probe] if match in matches]


@settings(max_examples=20)
@given(cases())
def test_the_seed_settles_everything(case: tuple[Observations, Clusters, Settings]) -> None:
    some, clusters, how = case

    def run() -> Outcome:
        return simulate(some, clusters, Feedback(len(clusters), 3), replace(how, capacity=3.0))

    one, again = run(), run()
    assert one.traffic == again.traffic
    for a, b in zip([*one.answers, one.shed, one.delay], [*again.answers, again.shed, again.delay], strict=True):
        np.testing.assert_array_equal(a, b)


# --- how long heads remember ------------------------------------------------------------------------------------------


def far_apart(*, each_hop: bool) -> tuple[Observations, Clusters, Settings]:
    """The counterexample of the printed rule, drawn out: window 10, epsilon 2, delay 3 seconds, a chain of heads."""
    rows = [(0, sensor, 1) for sensor in range(1, NODES)] + [(10_000 * MS, 0, 1)]
    timing = Timing(100 * MS, (2_900 * MS, 2_900 * MS), 2_000 * MS, 0, each_hop=each_hop)
    clusters = Clusters(
        Topology(np.zeros((NODES, 2)), 1.0, 1 - np.eye(NODES, dtype=np.int64)), np.arange(NODES), np.arange(NODES)
    )
    return observations_of(rows, 10_000 * MS), clusters, Settings(timing)


@pytest.mark.parametrize("each_hop", [False, True])
def test_the_printed_retention_loses_output_and_the_corrected_one_does_not(*, each_hop: bool) -> None:
    some, clusters, how = far_apart(each_hop=each_hop)
    expected = listed(centralised(some, clusters))
    assert [len(answer.matches) for answer in expected] == [1, 2, 3, 4, 5, 6]
    assert listed(simulate(some, clusters, settings=how).answers) == expected
    printed = listed(simulate(some, clusters, settings=replace(how, retention="printed")).answers)
    assert printed[-1].probe < NODES - 1, "the probe at 10 s finds that every head has forgotten"
    assert sum(len(answer.matches) for answer in printed) < 1 + 2 + 3 + 4 + 5


@settings(max_examples=30)
@given(cases())
def test_the_printed_retention_never_invents_anything(case: tuple[Observations, Clusters, Settings]) -> None:
    some, clusters, how = case
    whole = {answer.probe: answer.matches for answer in listed(centralised(some, clusters))}
    for probe, matches in listed(simulate(some, clusters, settings=replace(how, retention="printed")).answers):
        for sensor, times in matches:
            of_all = dict(whole[probe])[sensor]
            assert times == of_all[: len(times)]


def test_the_bound_is_the_derived_one() -> None:
    timing = Timing(round=1, hop=(0, 2), report=2, skew=0)
    assert (timing.epsilon, timing.delay(1)) == (2, 3)
    assert timing.retention("printed", 10, 1, 3) == 13
    assert timing.retention("corrected", 10, 1, 3) == 10 + 2 + 2 * 3 + timing.round
    again = replace(timing, each_hop=True)
    assert again.retention("corrected", 10, 1, 3) == 10 + 2 + 2 * (3 + 2) + timing.round


def test_heads_remember_for_as_long_as_probes_wait_for_filters() -> None:
    """Filters every 10 s, a window of 1 s: the probe comes when its match is long past, and finds it."""
    clusters = clusters_of([0] * 3 + [1] * 4)
    some = observations_of([(0, 0, 1), (1000 * MS, 3, 1), (1001 * MS, 4, 2)], 1000 * MS)
    timing = Timing(100 * MS, (0, MS), 0, 0)
    outcome = simulate(some, clusters, Filters(KeySets(), 100), Settings(timing))
    assert listed(outcome.answers) == [naive.Answer(1, [(0, [0])])]
    assert outcome.delay[0] > 8_000 * MS


def test_readings_beyond_the_buffer_are_told() -> None:
    """A buffer too short for the reports: what comes late is named, and the rest is answered as if it were not."""
    rows = [(100 * MS * i, i % NODES, 1) for i in range(60)]
    some, clusters = observations_of(rows, 1000 * MS), clusters_of([0, 0, 1, 1, 2, 2, 2])
    outcome = simulate(some, clusters, settings=Settings(Timing(report=500 * MS, buffer=150 * MS, skew=0)))
    assert 5 < len(outcome.late) < 55
    left = np.setdiff1d(np.arange(60), outcome.late)
    expected = centralised(Observations(*(column[left] for column in some)), clusters)
    assert listed(outcome.answers) == [
        naive.Answer(int(left[answer.probe]), answer.matches) for answer in listed(expected)
    ]


def test_a_busy_head_sheds_readings_and_says_which() -> None:
    rows = [(10 * MS * i, i % NODES, i % 3) for i in range(400)]
    some, clusters = observations_of(rows, 500 * MS), clusters_of([0, 0, 1, 1, 2, 2, 2])
    outcome = simulate(some, clusters, settings=Settings(capacity=6.0))
    assert 0 < len(outcome.shed) < 400
    answered = set(outcome.answers.probe.tolist())
    assert answered
    assert not answered & set(outcome.shed.tolist())
    assert len(simulate(some, clusters, settings=Settings(capacity=1e6)).shed) == 0
    slower = simulate(some, clusters, settings=Settings(capacity=6.0, work=2.0))
    assert len(slower.shed) > len(outcome.shed)


# --- messages and bytes -----------------------------------------------------------------------------------------------


def test_bytes_by_hand() -> None:
    """Two heads, two hops apart; the second reading finds the first, at the other head."""
    topology = Topology(np.array([[0.0, 0.0], [2.0, 0.0]]), 1.0)
    clusters = Clusters(topology, np.array([0, 1]), np.array([0, 1]))
    some = Observations(np.array([0, 1]), np.array([0, 50]), np.array([7, 7]), np.array([100, 100]))
    sizes = Sizes(header=10, reading=20, head=1, sensor=4, time=8)
    traffic = simulate(some, clusters, settings=Settings(sizes=sizes)).traffic
    assert traffic.messages == {"reports": 2, "probes": 2, "results": 1, "notes": 0, "filters": 0}
    assert traffic.bytes["reports"] == 0, "both are heads"
    assert traffic.bytes["probes"] == 2 * 2 * (10 + 20 + 1)
    assert traffic.bytes["results"] == 0 * (10 + 20 + 1 + 4 + 8), "the last head is the sink"
    assert traffic.between_heads == traffic.bytes["probes"]
    padded = simulate(some, clusters, settings=Settings(sizes=replace(sizes, null=3))).traffic
    assert padded.bytes["probes"] == 2 * 2 * (10 + 20 + 1 + 3)
    # A sink apart: one sensor with two times comes to it, two hops away.
    thrice = Observations(np.array([0, 0, 1]), np.array([0, 20, 50]), np.full(3, 7), np.full(3, 100))
    away = replace(clusters, topology=Topology(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.5]]), 1.0), sink=2)
    traffic = simulate(thrice, away, settings=Settings(sizes=sizes)).traffic
    assert traffic.bytes["results"] == 2 * (10 + 20 + 1 + 4 + 2 * 8)


def test_delays_are_from_the_reading_to_the_sink() -> None:
    timing = Timing(round=100, hop=(10, 10), report=0, skew=0, buffer=0)
    topology = Topology(np.array([[0.0, 0.0], [1.0, 0.0]]), 1.0)
    clusters = Clusters(topology, np.array([0, 1]), np.array([0, 1]), sink=1)
    some = Observations(np.array([0, 1]), np.array([0, 50]), np.array([7, 7]), np.array([100, 100]))
    outcome = simulate(some, clusters, settings=Settings(timing))
    # The second is handled at 100, at the other head by 200, and is back at the sink at 210.
    assert outcome.delay.tolist() == [160]
    # With 300 of buffer at each head it is handled at 400, is there at 410, and is handled again at 800.
    patient = replace(timing, buffer=300, each_hop=True)
    assert simulate(some, clusters, settings=Settings(patient)).delay.tolist() == [400 + 10 + 300 + 90 + 10 - 50]
    assert outcome.arrivals.tolist() == [1]
    assert outcome.sent.tolist() == [1, 1]


def test_nothing_to_simulate_is_an_error() -> None:
    with pytest.raises(BadArgument, match="no readings"):
        simulate(observations_of([], 1), clusters_of([0] * NODES))


def test_readings_of_no_node_are_refused() -> None:
    some, clusters = observations_of([(0, 3, 1)], 5), clusters_of([0, 0, 1])
    with pytest.raises(BadArgument, match="sensors 3 to 3, and there are 3 nodes"):
        simulate(some, clusters)
    with pytest.raises(BadArgument, match="unequal"):
        simulate(some._replace(bin=np.zeros(2, np.int64)), clusters)
    with pytest.raises(BadArgument, match="window of -1"):
        simulate(some._replace(sensor=np.zeros(1, np.int64), window=np.array([-1])), clusters)
