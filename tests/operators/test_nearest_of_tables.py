"""The nearest rows of whole tables with a probability: by a join in the order of cells, as rows that are pushed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.model import objects
from appulse.operators.held_pairs import NearestRows

_N = 1500
_MODELS = (ap.Exact("x", "y"), ap.Gaussian("x", "y", sigma="s"))


def _table(seed: int, n: int = _N) -> pa.Table:
    """Rows of few keys at few times; a part of them come twice, and are equally far away."""
    random = np.random.default_rng(seed)
    columns = {
        "id": random.integers(0, n // 3, n),
        "t": np.sort(random.integers(0, n // 4, n)).astype(float),
        "x": random.uniform(0, 20, n),
        "y": random.uniform(0, 20, n),
        "s": random.choice([0.2, 0.5], n),
        "p": random.choice([0.7, 1.0], n),
        "c": random.integers(0, 9, n),
        "g": random.integers(0, 3, n),
    }
    table = pa.table(columns)
    return pa.concat_tables([table, table.slice(0, n // 5)]).sort_by("t")


def _rows(answers: pa.Table) -> list[str]:
    """Answers in any order; the last bits of probabilities may differ."""
    return sorted(
        " ".join(f"{value:.9g}" if isinstance(value, float) else str(value) for value in row.values())
        for row in answers.to_pylist()
    )


@pytest.mark.parametrize("model", _MODELS)
@pytest.mark.parametrize("by", ["distance", "probability"])
@pytest.mark.parametrize(
    "more",
    [{}, {"carry": ["c"]}, {"existence": "p"}, {"partition_by": "g"}],
    ids=["plain", "carry", "exists", "groups"],
)
def test_whole_tables_have_the_answers_of_rows_that_are_pushed(model: Any, by: str, more: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"k": 3, "epsilon": 1.0, "by": by, "probability": 0.3, "window": 40.0, "how": "left"}
    left, right = _table(0), _table(1)
    given: dict[str, Any] = {"key": "id", "time": "t", "value": model, **more}
    found = ap.nearest(ap.Stream(left, **given), ap.Stream(right, **given), **asked)
    pushing = ap.Nearest(ap.Stream(None, **given), ap.Stream(None, **given), **asked)
    expected = [pushing.push(left=left, right=right), pushing.drain()]
    assert len(found) > _N
    assert _rows(found) == _rows(pa.concat_tables(expected))


@pytest.mark.parametrize("model", _MODELS)
def test_pairs_of_whole_tables_do_not_wait(model: Any) -> None:
    """Nor is anything done in Python row by row."""
    left, right = (ap.Stream(_table(i), key="id", time="t", value=model) for i in (0, 1))
    with (
        mock.patch.object(NearestRows, "take", side_effect=AssertionError),
        mock.patch.object(objects, "blake2b", side_effect=AssertionError),
    ):
        found = ap.nearest(left, right, k=2, epsilon=1, probability=0.3, window=40)
    assert len(found) > _N


def test_no_warning_is_of_pairs_that_are_no_answers() -> None:
    """All rows are near each other, and each has one answer."""
    table = _table(0, 3000)
    left, right = (ap.Stream(table, key="id", time="t", value="x", name=name) for name in ("left", "right"))
    found = ap.nearest(left, right, epsilon=99, probability=0.5, window=9999, options=ap.Options(max_output=len(table)))
    assert len(found) == len(table)
