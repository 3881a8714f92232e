"""What notebooks show of tables, schemas, streams and frames."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import appulse as ap
from appulse.report.notebook import frame_html, schema_html, table_html


def test_a_result_says_how_many_rows_and_rejects_there_are() -> None:
    rows = pa.table({"id": [1, 2, 3], "t": [0, 1, None], "x": [0.0, 0.25, 1.0]})
    pairs = ap.self_join(ap.Stream(rows, key="id", time="t", value="x"), epsilon=1, probability=1, window=10)
    page = table_html(pairs)
    assert "<td>0.25</td>" in page
    assert "1 rows, 1 rejects" in page
    assert table_html(pa.table({"<b>": range(30)})).endswith("<p>30 rows, the first 10</p>")
    assert "&lt;b&gt;" in table_html(pa.table({"<b>": [1]}))


def test_schemas_streams_and_frames_have_a_form() -> None:
    assert "<td>x</td><td>double</td>" in schema_html(pa.schema({"x": pa.float64()}))
    stream: Any = ap.Stream(None, key="id", time="t", value=ap.Exact("x"))
    assert "rows are pushed" in stream._repr_html_()
    assert "<th>key</th><td>id</td>" in stream._repr_html_()
    field = SimpleNamespace(name="x", dataType=SimpleNamespace(simpleString=lambda: "double"))
    assert "ap.start" in frame_html(SimpleNamespace(schema=[field], isStreaming=True))
    assert "show()" in frame_html(SimpleNamespace(schema=[field], isStreaming=False))


def test_a_prompt_shows_what_was_given_and_no_defaults() -> None:
    stream: Any = ap.Stream(None, key="id", time="t", value=ap.Position("lat", "lon", sigma=10), lateness="5 seconds")
    said = "key='id', time='t', value=Position(lat='lat', lon='lon', sigma=10.0), lateness='5 seconds'"
    assert repr(stream) == f"Stream(None, {said})"
    join = ap.SimilarityJoin(stream, epsilon=10.0, probability=0.5, window=ap.CountWindow(3))
    assert repr(join) == (
        f"SimilarityJoin(Stream(None, {said}, name='left'), epsilon=10.0, probability=0.5, window=CountWindow(size=3))"
    )
    assert "<th>epsilon</th><td>10.0</td>" in join._repr_html_()
    frame = pa.table({"id": [1], "t": [0], "x": [0.0]})
    assert repr(ap.Stream(frame, "id", "t", ap.Gaussian("x", sigma=1))) == (
        "Stream(<Table>, key='id', time='t', value=Gaussian('x', sigma=1.0))"
    )


def test_the_extension_registers_them() -> None:
    types: list[Any] = []
    names: list[tuple[str, str]] = []
    html = SimpleNamespace(
        for_type=lambda kind, _: types.append(kind), for_type_by_name=lambda *given: names.append(given[:2])
    )
    ap.load_ipython_extension(SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": html})))
    assert types == [pa.Table, pa.Schema]
    assert ("pyspark.sql.classic.dataframe", "DataFrame") in names
