"""Extremes of long windows of rows that may not exist: the product over all rows is the twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from appulse.kernels.aggregates import UncertainRows
from appulse.kernels.uncertain_extremes import extremes

if TYPE_CHECKING:
    from numpy.typing import NDArray

N, LENGTH, SAMPLES = 400, 150, 3


class _Case(NamedTuple):
    exist: NDArray[np.float64]
    centre: NDArray[np.float64]


def _cases() -> dict[str, _Case]:
    rng = np.random.default_rng(5)
    random, rising = rng.normal(0, 10, N), np.linspace(0.0, N / 2, N)
    return {
        "likely": _Case(rng.uniform(0.8, 1, N), random),
        "some certain": _Case(np.where(rng.random(N) < 0.3, 1.0, rng.uniform(0, 1, N)), random),
        "unlikely": _Case(rng.uniform(0, 0.01, N), random),
        "rising": _Case(rng.uniform(0.3, 1, N), rising),
        "falling": _Case(rng.uniform(0.3, 1, N), np.negative(rising)),
        "first unlikely, then likely": _Case(np.linspace(0.001, 1, N), np.round(random)),
    }


def _rows(case: _Case, a: int = 0, b: int = N) -> UncertainRows:
    values = case.centre[:, None] + np.array([-3.0, 0.0, 4.0])
    weights = case.exist[:, None] * np.array([0.2, 0.5, 0.3])
    first = np.arange(b - a + 1) * SAMPLES
    return UncertainRows(case.exist[a:b].copy(), first, values[a:b].ravel(), weights[a:b].ravel())


def _twin(case: _Case, a: int, b: int, sign: float) -> tuple[float, float]:
    """Mean and deviation of the extreme, by the chance that none is beyond each value."""
    held = _rows(case, a, b)
    values = np.unique(held.values)[:: -int(sign)]
    owner = np.arange(b - a).repeat(SAMPLES)
    none = [1.0]
    for value in values:
        beyond = np.bincount(owner, held.weights * (sign * held.values >= sign * value), b - a)
        none.append(float(np.prod(1 - np.minimum(beyond, held.exist))))
    chance = -np.diff(none)
    mean = float(values @ chance / chance.sum())
    return mean, float(np.sqrt((values - mean) ** 2 @ chance / chance.sum()))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", _cases())
def test_extremes_of_long_windows_are_those_of_all_rows(name: str, sign: float) -> None:
    case = _cases()[name]
    end = np.arange(1, N + 1)
    begin = np.maximum(0, end - LENGTH)
    out = np.zeros((N, 2))
    at, values, chances = extremes(begin, end, _rows(case), 0, sign, out)
    for w in range(0, N, 7):
        a, b = int(begin[w]), int(end[w])
        assert out[w] == pytest.approx(_twin(case, a, b, sign), rel=1e-9, abs=1e-9)
        # Whatever windows came before, to the bit.
        alone = np.zeros((1, 2))
        found = extremes(np.zeros(1, np.int64), np.array([b - a]), _rows(case, a, b), 0, sign, alone)
        assert alone.tobytes() == out[w : w + 1].tobytes()
        assert found[1].tobytes() == values[at[w] : at[w + 1]].tobytes()
        assert found[2].tobytes() == chances[at[w] : at[w + 1]].tobytes()
