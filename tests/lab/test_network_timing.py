"""Clocks that are off, and the boundary of what heads remember: by hand, to the microsecond."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from appulse.lab.network import Clusters, Observations, Settings, Timing, Topology, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Rounds of 100 microseconds, and nothing on its way for longer than it takes until the next one begins.
TIMING = Timing(round=100, hop=(0, 0), report=0, skew=0, buffer=0)


def two_heads(nodes: int = 2) -> Clusters:
    """Heads 0 and 1, the second the sink; all other nodes belong to the first."""
    topology = Topology(np.column_stack([np.arange(nodes) % 2, np.zeros(nodes)]).astype(float), 1.0)
    return Clusters(topology, np.where(np.arange(nodes) == 1, 1, 0), np.array([0, 1]), sink=1)


def readings(*rows: tuple[int, int], window: int = 100) -> Observations:
    """All of one value, from (sensor, time by its clock)."""
    sensor, time = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Observations(sensor, time, np.full(len(rows), 7), np.full(len(rows), window))


def ahead(monkeypatch: pytest.MonkeyPatch, clocks: Sequence[int]) -> None:
    """Each node's clock so far ahead of the truth; the heads are the first nodes."""
    monkeypatch.setattr(
        "appulse.lab.network.simulation._Run._skews", lambda _run, _stream, n: np.array(clocks[:n], np.int64)
    )


@pytest.mark.parametrize(("time", "met"), [(0, True), (-1, False)])
def test_a_reading_as_old_as_retention_is_remembered_and_an_older_one_is_not(time: int, *, met: bool) -> None:
    """As printed: 100 of window and 100 of delay. The probe of time 50 comes to the other head at 200."""
    assert TIMING.retention("printed", 100, 1, 2) == 200
    outcome = simulate(readings((1, time), (0, 50)), two_heads(), settings=Settings(TIMING, retention="printed"))
    assert outcome.answers.probe.tolist() == ([1] if met else [])


@pytest.mark.parametrize(("clock", "met"), [(-100, True), (0, True), (1, False), (100, False)])
def test_a_head_forgets_by_its_own_clock(clock: int, monkeypatch: pytest.MonkeyPatch, *, met: bool) -> None:
    """At 200 a clock that is ahead by 1 says 201, and the reading of time 0 is older than 200."""
    ahead(monkeypatch, [0, clock])
    outcome = simulate(readings((1, 0), (0, 50)), two_heads(), settings=Settings(TIMING, retention="printed"))
    assert len(outcome.late) == 0
    assert outcome.answers.probe.tolist() == ([1] if met else [])


@pytest.mark.parametrize(
    ("clock", "buffer", "arrived"), [(30, 0, 200), (-30, 0, 200), (60, 100, 200), (-60, 100, 400), (0, 100, 300)]
)
def test_a_clock_ahead_says_a_later_time_and_waits_less(
    clock: int, buffer: int, arrived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading that bears 50 was made at 50 less the clock; its head handles it when that says 50 + buffer."""
    ahead(monkeypatch, [clock, 0])
    timing = replace(TIMING, buffer=buffer)
    outcome = simulate(readings((1, 0), (0, 50)), two_heads(), settings=Settings(timing))
    assert outcome.answers.probe.tolist() == [1]
    assert outcome.delay.tolist() == [arrived - (50 - clock)]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_buffer_is_two_clocks_long(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensor whose clock is behind, a head whose clock is ahead: just in time; a round less is too late."""
    skew = 1000
    ahead(monkeypatch, [sign * skew, 0, -sign * skew])
    some, timing = readings((2, 0), (0, 50)), replace(TIMING, skew=skew, buffer=None)
    assert timing.epsilon == 2 * skew
    assert simulate(some, two_heads(3), settings=Settings(timing)).late.tolist() == []
    short = replace(timing, buffer=2 * skew - 100)
    assert simulate(some, two_heads(3), settings=Settings(short)).late.tolist() == ([0] if sign == 1 else [])


@pytest.mark.parametrize("sign", [1, -1])
def test_retention_outlasts_two_clocks_that_are_off(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head behind asks late, one ahead forgets early: the oldest reading of the window is there all the same."""
    skew, window = 1000, 300
    ahead(monkeypatch, [-sign * skew, sign * skew])
    timing = replace(TIMING, skew=skew, buffer=None)
    assert timing.retention("corrected", window, 1, 2) == window + 2 * skew + 100 + 2 * skew + 100
    some = readings((1, 0), (0, window), window=window)
    assert simulate(some, two_heads(), settings=Settings(timing)).answers.probe.tolist() == [1]
    printed = simulate(some, two_heads(), settings=Settings(timing, retention="printed"))
    assert printed.answers.probe.tolist() == ([] if sign == 1 else [1])
