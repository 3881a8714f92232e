"""Names that may be read from right to left do not turn what stands beside them on any page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.report.encounters_page import encounters_page
from appulse.report.fences_page import fences_page
from appulse.report.field_page import phenomena_page
from appulse.report.join_page import join_page
from appulse.report.live import Shown
from appulse.report.page import isolated
from tests.helpers.pages import read
from tests.report.test_encounters_page import moving
from tests.report.test_fences_page import walk
from tests.report.test_report_pages import events, field

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = "\N{HEBREW LETTER ALEF}\N{RIGHT-TO-LEFT OVERRIDE}"  # begins each name
SIGNS = "a1\N{HEBREW LETTER ALEF}\u202e\u202c\u2066\u2067\u2068\u2069"


@given(st.text(SIGNS))
def test_a_name_ends_what_it_begins_and_nothing_else(name: str) -> None:
    found = isolated(name)
    assert found.replace("\u2069", "") in (name, "\u2068" + name.replace("\u2069", ""))
    depths = [0]
    for sign in found:
        depths.append(depths[-1] + (sign in "\u2066\u2067\u2068") - (sign == "\u2069"))
    assert depths[-1] == 0
    if set(name) <= {"a", "1"}:
        assert found == name
    else:
        assert min(depths[1:-1]) > 0


def turned(table: pa.Table, *names: str) -> pa.Table:
    """A table whose texts in some columns may be read from right to left."""
    for name in names:
        column = pc.binary_join_element_wise(pa.scalar(TURNS), table[name].cast(pa.string()), "")
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def of_encounters() -> str:
    _, table, met = moving()
    return encounters_page(turned(met, "left_key", "right_key"), turned(table, "ship"))


def of_fences() -> str:
    stream, table, fences = walk()
    found = ap.fence_events(stream, fences)
    return fences_page(turned(found, "query", "key"), turned(fences, "query"), turned(table, "van"))


def of_a_join() -> str:
    table = pa.table({"id": [*"abcd"], "t": range(4), "x": [0.0] * 4})
    found = ap.self_join(ap.Stream(table, key="id", time="t", value="x", name="s"), epsilon=1, probability=1, window=9)
    return join_page(turned(found, *(f"{side}_{what}" for side in ("left", "right") for what in ("stream", "key"))))


def of_phenomena() -> str:
    readings, locations = field()
    groups = turned(readings.append_column("room", pa.array(["r"] * len(readings))), "mote", "room")
    places = turned(locations, "mote")
    found = events(groups, places, partition_by="room")
    return phenomena_page(found, groups, places, labels=dict.fromkeys((0.0, 1.0, 2.0), TURNS))


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts(part)


@pytest.mark.parametrize("made", [of_encounters, of_fences, of_a_join, of_phenomena])
def test_names_stand_apart_on_pages(made: Any) -> None:
    shown = read(made())
    lines = [text for text in (*shown.said.splitlines(), *texts(shown.data)) if TURNS in text]
    among = [text for text in lines if " " in text.strip()]
    assert among
    assert all(text.count(TURNS) == text.count("\u2068" + TURNS) for text in among)


@pytest.mark.parametrize(
    "answer",
    [
        {"left_key": TURNS, "right_key": "b", "probability": 0.5, "closest_distance": 3.0},
        {"query": TURNS, "key": TURNS, "event": "enter", "probability": 0.5},
        {"phenomenon": 1, "event": "appears", "value": TURNS},
        {"other": TURNS, "count": 3},
    ],
)
def test_names_stand_apart_among_events_of_a_live_page(answer: dict[str, Any]) -> None:
    stream = ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name="s")
    answers = pa.table({name: [value] for name, value in answer.items()})
    (event,) = Shown("job", "encounters", [stream]).message({}, answers)["events"]
    assert "\u2068" + TURNS + "\u2069" in event["text"]
    assert event["text"] in event["line"]
    assert event["line"].count(TURNS) == event["line"].count("\u2068" + TURNS)
