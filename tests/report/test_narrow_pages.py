"""Pages on a narrow screen: all columns of tables are on it, and letters of charts can be read."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import appulse as ap
from appulse.report.encounters_page import encounters_page
from appulse.report.fences_page import fences_page
from appulse.report.field_page import phenomena_page
from appulse.report.join_page import join_page
from tests.helpers.pages import drawn
from tests.report.test_encounters_page import moving
from tests.report.test_fences_page import walk
from tests.report.test_report_pages import events, field, matched, told

if TYPE_CHECKING:
    from pathlib import Path

# As the browser lays it out: its width, the right ends of cells, and of each text in a chart its letters and right end.
MEASURED = """<script>
const shown = [...document.querySelectorAll("svg.chart text")].filter((one) => one.getClientRects().length);
parent.document.title = JSON.stringify({
  width: innerWidth,
  cells: [...document.querySelectorAll("th, td")].map((one) => one.getBoundingClientRect().right),
  texts: shown.map((one) => {
    const picture = one.closest("svg.chart");
    const each = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
    return [parseFloat(getComputedStyle(one).fontSize) * each, one.getBoundingClientRect().right];
  }),
});
</script></body>"""


def visits() -> str:
    """A page whose times have fractions of a second."""
    stream, table, fences = walk()
    found = ap.fence_events(stream, fences).to_pylist()
    stamps = {"time": pa.timestamp("us"), "since": pa.timestamp("us")}
    columns = {name: [row[name] for row in found] for name in found[0]}
    for name in stamps:
        columns[name] = [round((1.7e9 + second + 0.468) * 1e6) for second in columns[name]]
    late = pa.array([round((1.7e9 + second + 0.468) * 1e6) for second in table["time"].to_pylist()])
    rows = table.set_column(1, "time", late.cast(pa.timestamp("us")))
    happened = {name: pa.array(column, stamps.get(name)) for name, column in columns.items()}
    return fences_page(pa.table(happened), fences, rows)


def phenomena() -> str:
    readings, locations = field()
    return phenomena_page(events(readings, locations), readings, locations)


def encounters() -> str:
    _, table, met = moving()
    return encounters_page(met, table)


@pytest.mark.parametrize(
    "page", [visits, phenomena, encounters, lambda: join_page(matched(), None, told())], ids=["v", "p", "e", "j"]
)
def test_a_narrow_screen_shows_all_columns_and_letters_that_can_be_read(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    measured = re.sub(r"<meta http-equiv.*?>", "", page().replace("</body>", MEASURED), count=1)
    inside = f'<iframe width="390" height="1600" style="border:0" srcdoc="{escape(measured)}"></iframe>'
    file.write_text(f"<!doctype html><title>-</title>{inside}", encoding="utf-8")  # windows are no narrower than 500
    title = re.search(r"<title>(.*?)</title>", drawn(file, "1"), re.DOTALL)
    assert title is not None
    found = json.loads(unescape(title[1]))
    assert found["width"] == 390
    assert max(found["cells"], default=0) <= 390
    assert len(found["texts"]) > 3
    assert min(size for size, _ in found["texts"]) >= 9.0
    assert max(right for _, right in found["texts"]) <= 390
