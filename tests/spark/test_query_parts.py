"""Sets of queries in parts: rows that go to the parts they meet are answered as by the whole set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.spark.queries.parts import routed
from appulse.engines.spark.tables import unpacked
from appulse.operators.output import Output
from appulse.queries.index import BoxIndex
from appulse.queries.parts import parted
from appulse.queries.rows import Rows
from appulse.queries.sets import QuerySet
from tests.helpers import naive_queries, query_strategies

if TYPE_CHECKING:
    from tests.helpers.query_strategies import Case


def _engine(case: Case, table: pa.Table) -> LocalQueries:
    asked, how = case.query_table.schema, case.probability
    call = resolve_queries(case.streams[0], case.tables[0], asked, probability=how, on_reject="collect")
    engine = LocalQueries(call)
    engine.change(table)
    return engine


@settings(max_examples=80)
@given(st.data())
def test_parts_answer_as_the_slow_twin(data: st.DataObject) -> None:
    """Any conditions over certain and uncertain rows: each row is sent, whole, to the parts that may know it."""
    case = data.draw(query_strategies.selections())
    whole = _engine(case, case.query_table)
    parts, members = parted(whole.queries, data.draw(st.sampled_from((1, 2, 3, 10))))
    keys = list(range(max(1, len(members))))
    table = case.tables[0].select(whole.call.columns)
    found = [whole.call.answer_schema.empty_table()]
    for key, blob in routed(whole.call, parts, keys, table):
        if blob[:1] == b"r":
            own = _engine(case, case.query_table.take(pa.array(members[key])))
            found.append(own.judge(unpacked(blob[1:]), Output())[0])
    naive_queries.assert_same(pa.concat_tables(found), case.expected())


def test_parts_lie_apart() -> None:
    """Of fences over a plane, and some few large ones: a row goes to few parts, each of about one size."""
    random = np.random.default_rng(1)
    corner, side = random.random((4000, 2)), np.where(np.arange(4000) % 400 == 0, 0.8, 0.01)
    texts = [
        f"x >= {x!r} AND x <= {x + s!r} AND y >= {y!r} AND y <= {y + s!r}"
        for (x, y), s in zip(corner.tolist(), side.tolist(), strict=True)
    ]
    queries = QuerySet({"x": pa.float64(), "y": pa.float64()}, pa.int64())
    queries.add(pa.array(range(4000)), pa.array(texts))
    queries.remove(pa.array([3]))
    parts, members = parted(queries, 16)
    assert sorted(np.concatenate(members).tolist()) == [slot for slot in range(4000) if slot != 3]
    assert max(map(len, members)) <= min(map(len, members)) + 1
    points = random.random((1000, 2))
    rows = Rows({"x": pa.array(points[:, 0]), "y": pa.array(points[:, 1])})
    assert parts.met(rows, 1000).sum(axis=0).mean() < 6
    assert len(BoxIndex().boxes(2)[2]) == 0
