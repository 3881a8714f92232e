"""A few wide rows do not make `assign` look at all rows of all blocks for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.operators import blocks
from appulse.operators.similarity_join import SimilarityJoin

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from numpy.typing import NDArray

_N, _EPSILON, _LEAST = 20_000, 2.0, 0.1


def _table(seed: int, sigma: NDArray[np.float64]) -> pa.Table:
    random, n = np.random.default_rng(seed), len(sigma)
    x, y = random.uniform(0, 300, (2, n))
    return pa.table({"id": range(n), "t": np.arange(n) * 0.01, "x": x, "y": y, "s": sigma})


def _assigned(wide: float, seconds: int = 10) -> tuple[pa.Table, Counter[str]]:
    """The answers where every hundredth row is as ``wide``, and what the joins of all blocks counted."""
    sigma = np.where(np.arange(_N) % 100 == 5, wide, 0.3)
    left, right = (
        ap.Stream(_table(i, sigma), key="id", time="t", value=ap.Gaussian("x", "y", sigma="s")) for i in (0, 1)
    )
    counted, find = [], blocks.partners

    def finding(plan: Any, streams: Any, counts: Counter[str]) -> Any:
        counted.append(counts)
        return find(plan, streams, counts)

    window = ap.TumblingWindow(f"{seconds} seconds")
    with mock.patch("appulse.engines.join.assign.partners", finding):
        found = ap.assign(left, right, epsilon=_EPSILON, probability=_LEAST, window=window)
    return found, counted[-1]


def test_rows_too_wide_to_match_are_not_looked_for() -> None:
    """With a sigma of 30 a row is within 2 of anything in one case of five hundred at most."""
    assert _assigned(30.0)[1]["candidates"] <= 1.1 * _assigned(0.3)[1]["candidates"]


def test_rows_that_may_match_are_looked_for_in_some_blocks() -> None:
    """A join has some blocks: what a wide row costs does not grow with the rows of all others."""
    most, push = 0, SimilarityJoin.push

    def pushed(join: SimilarityJoin, batches: Sequence[Any], *more: Any) -> Any:
        nonlocal most
        most = max(most, sum(len(rows) for *_, rows in batches))
        return push(join, batches, *more)

    with mock.patch.object(SimilarityJoin, "push", pushed):
        assert len(_assigned(4.0)[0])
    assert most <= 2 * blocks._AT_ONCE


@pytest.mark.parametrize("at_once", [1, 100, 1 << 30])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_joins_of_any_blocks_have_the_same_answers(at_once: int, how: Any) -> None:
    sigma = np.random.default_rng(0).choice([0.0, 0.3, 3.0, 4.3, 4.4, 30.0], 2000)  # from 4.36 on none may match
    left, right = (
        ap.Stream(_table(i, sigma), key="id", time="t", value=ap.Gaussian("x", "y", sigma="s")) for i in (2, 3)
    )
    asked: dict[str, Any] = {"epsilon": _EPSILON, "probability": _LEAST, "how": how, "density": 0.01}
    with (
        mock.patch.object(blocks, "_AT_ONCE", at_once),
        mock.patch.object(blocks, "_may_match", lambda *asked: np.ones(len(asked[2]), bool)),
    ):
        expected = ap.assign(left, right, window=ap.TumblingWindow("3 seconds"), **asked)
    assert ap.assign(left, right, window=ap.TumblingWindow("3 seconds"), **asked).equals(expected)
