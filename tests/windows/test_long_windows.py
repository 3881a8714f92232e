"""A long window that is asked push after push how many of its rows exist is not gone through anew."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.engines import saving
from appulse.kernels import numbering as kernels
from appulse.kernels.poisson_binomial import EXACT, CountRule, Ticks, evict
from appulse.operators.running_presence import LONG, LongWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

BEFORE, AFTER, SIZE = 4 * LONG, 400, 2 * LONG
ASKED: dict[str, Any] = {"epsilon": 0.01, "probability": 0.1, "window": ap.UncertainCountWindow(SIZE, 0.9)}
GIVEN: dict[str, Any] = {"key": "id", "time": "t", "value": ap.Exact("x"), "existence": "e"}


def _rows(seed: int, change: str | None = None) -> pa.Table:
    chance, n = np.random.default_rng(seed), BEFORE + AFTER
    exist = np.where(chance.random(n) < 0.5, 1.0, chance.uniform(0.5, 1.0, n))
    rows = pa.table({"id": np.arange(n), "t": np.arange(n) // 2 * 1.0, "x": chance.uniform(0.0, 4.0, n), "e": exist})
    return rows if change is None else rows.append_column("op", pa.array([change] * n))


def _sorted(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).sort_by([("left_key", "ascending"), ("right_key", "ascending")])


def _agree(found: Sequence[pa.Table], wanted: pa.Table) -> None:
    mine, whole = _sorted(found), _sorted([wanted])
    assert len(mine) > 100
    assert mine.select(["left_key", "right_key"]).equals(whole.select(["left_key", "right_key"]))
    assert np.abs(mine["probability"].to_numpy() - whole["probability"].to_numpy()).max() < 1e-12
    assert ((whole["probability"].to_numpy() < 0.9) & (whole["probability"].to_numpy() > 0.1)).sum() > 5


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("saved", [False, True])
def test_pushes_say_what_whole_tables_do(monkeypatch: pytest.MonkeyPatch, saved: bool, two: bool) -> None:
    tables = {name: _rows(seed) for seed, name in enumerate(["left", "right"][: 1 + two])}
    join: Any = ap.SimilarityJoin(*(ap.Stream(None, **GIVEN, name=name) for name in tables), **ASKED)
    gone_through, list_rows = [], kernels.rows_of

    def counted(*given: Any) -> Any:
        gone_through.append(len(given[2]))
        return list_rows(*given)

    monkeypatch.setattr(kernels, "rows_of", counted)
    found = [join.push(**{name: rows.slice(0, BEFORE) for name, rows in tables.items()})]
    for begin, end in pairwise(range(BEFORE, BEFORE + AFTER + 1, 10)):
        found.append(join.push(**{name: rows.slice(begin, end - begin) for name, rows in tables.items()}))
        if saved and begin == BEFORE + AFTER // 2:
            saving.restore(join.engine, saving.snapshot(join.engine))
    assert len(gone_through) == 2 + saved
    whole = (ap.Stream(rows, **GIVEN, name=name) for name, rows in tables.items())
    _agree([*found, join.drain()], ap.similarity_join(*whole, **ASKED) if two else ap.self_join(*whole, **ASKED))


def test_rows_that_are_withdrawn_are_counted_no_more() -> None:
    rows, given = _rows(3, "add"), GIVEN | {"change": "op", "lateness": 20}
    join = ap.SimilarityJoin(ap.Stream(None, **given), **ASKED)
    found = [join.push(rows.slice(0, BEFORE))]
    gone = np.zeros(len(rows), bool)
    for begin, end in pairwise(range(BEFORE, BEFORE + AFTER + 1, 10)):
        late = np.arange(begin - 8, begin, 3)
        gone[late] = True
        takes = rows.take(late).drop(["op"]).append_column("op", pa.array(["remove"] * len(late)))
        found.append(join.push(pa.concat_tables([takes, rows.slice(begin, end - begin)])))
    stays = rows.filter(~gone).drop(["op"])
    _agree([*found, join.drain()], ap.self_join(ap.Stream(stays, **GIVEN), **ASKED))


def test_as_many_rows_as_are_withdrawn_do_not_stand_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come in one push that goes through all rows; rows that those withdrawn pushed out do not come back."""
    rows, first, many = _rows(4, "add"), 3 * LONG, 700
    taken = rows.slice(first - 2 * many, many).drop(["op"]).append_column("op", pa.array(["remove"] * many))
    cuts = [first, first + 10, first + 20, first + 20 + many, *range(first + 30 + many, first + 230 + many, 10)]
    parts = [rows.slice(begin, end - begin) for begin, end in pairwise([0, *cuts])]
    parts[3] = pa.concat_tables([taken, parts[3]])
    found = []
    for running in (True, False):
        if not running:
            monkeypatch.setattr("appulse.operators.numbering.run_on", lambda *_: False)
        join = ap.SimilarityJoin(ap.Stream(None, **GIVEN, change="op", lateness=20), **ASKED)
        found.append(pa.concat_tables([*(join.push(part) for part in parts), join.drain()]))
    _agree(found[:1], found[1])


@pytest.mark.parametrize("confidence", [0.9, 1.0])
def test_a_window_is_added_up_anew_when_there_is_no_room(confidence: float) -> None:
    chance, many = np.random.default_rng(5), 40 * LONG
    exist = np.where(chance.random(many) < 0.3, 1.0, chance.uniform(0.5, 1.0, many))
    rule, ends = CountRule(LONG // 2, confidence, 0.0, 1 << 40, EXACT), np.ones(many, bool)
    whole = np.empty(many, np.int64)
    evict(Ticks(np.array([0, many]), np.zeros(1, np.int64), ends), exist, rule, whole)
    window, oldest, most = LongWindow(0, 0, 0, exist[:0]), 0, 0
    for begin in range(0, many, 64):
        floor, _ = window.evict(oldest, exist[begin : begin + 64], ends[:64], rule)
        assert (floor == whole[begin : begin + 64]).all()
        oldest, most = int(floor[-1]), max(most, window.nbytes)
    assert window.end == many
    assert most < 600 * LONG
