"""The live page: what it shows of steps, who may see it, and what a browser makes of it."""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import threading
import time
from contextlib import closing
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse import jobs
from appulse.connect.page_server import Feed, PageServer
from appulse.jobs.live import Board
from appulse.jobs.resident import Resident
from appulse.report.live import MOST_EVENTS, Shown, outlines_of, place_columns
from appulse.report.live_figures import boxes, clock_text, figures
from appulse.report.live_page import live_page
from tests.helpers.pages import HOSTILE, close_once_read, read, shown_by, titled, with_script

if TYPE_CHECKING:
    from pathlib import Path

SHIPS = ap.Stream(None, key="ship", time="at", value=ap.Position("lat", "lon", sigma="error"), name="ships")
ROWS = pa.table(
    {
        "ship": ["a", "b", "a"],
        "at": [1.0, 2.0, 3.0],
        "lat": [50.0, 51.0, 50.5],
        "lon": [1.0, 2.0, 1.5],
        "error": [5.0] * 3,
    }
)


def test_a_message_has_the_newest_place_of_each_thing_and_sums() -> None:
    shown = Shown("job", "encounters", [SHIPS])
    pairs = pa.table({"left_key": ["a"], "right_key": ["b"], "probability": [0.96], "closest_time": [2.5]})
    shown.count({"rows": 3, "answers": 1, "rejects": 0}, {"candidates": 3, "pruned_reach": 2})
    first = shown.message({"ships": ROWS}, pairs, None, {"state_rows": 3})
    assert first["things"] == [[0, "a", 1.5, 50.5, 5], [0, "b", 2, 51, 5]]
    assert first["now"] == [3000, False]
    assert first["events"][0]["text"] == "a and b"
    assert first["events"][0]["things"] == [[0, "a"], [0, "b"]]
    shown.count({"rows": 3, "answers": 1, "rejects": 1}, {"candidates": 4})
    second = shown.message({"ships": ROWS}, pairs, pa.table({"reason": ["late"], "detail": ["by 3 s"]}))
    assert second["totals"] == {"rows": 6, "answers": 2, "rejects": 1}
    assert second["histogram"][19] == 2
    assert second["counted"] == {"candidates": 7, "pruned_reach": 2}
    assert second["rejects"] == [{"reason": "late", "detail": "by 3 s"}]
    json.dumps(second, allow_nan=False)


def test_a_map_leaves_out_places_that_are_rejects() -> None:
    """Ships send latitude 91 and longitude 181 where they know of none."""
    rows = pa.table(
        {"ship": ["a", "b"], "at": [1.0, 2.0], "lat": [50.0, 91.0], "lon": [1.0, 181.0], "error": [5.0] * 2}
    )
    assert Shown("job", "encounters", [SHIPS]).message({"ships": rows})["things"] == [[0, "a", 1, 50, 5]]


def test_messages_are_bounded_and_plain() -> None:
    shown = Shown("job", "match_queries", [SHIPS])
    many = pa.table(
        {"query": ["q"] * 500, "key": [float("nan")] * 500, "time": pa.array([0] * 500, pa.timestamp("us", "UTC"))}
    )
    message = shown.message({}, many, None)
    assert len(message["events"]) == MOST_EVENTS
    json.dumps(message, allow_nan=False)
    assert message["events"][0]["text"] == "nan matches q"


def test_a_map_needs_few_columns() -> None:
    assert place_columns(SHIPS) == ["ship", "at", "lon", "lat", "error"]
    assert place_columns(ap.Stream(None, key="k", time="t", value=ap.Gaussian("x", "y", "z", sigma=1))) == [*"ktxy"]
    assert place_columns(ap.Stream(None, key="k", time="t", value="x")) == []


def test_fences_have_outlines_in_degrees_and_radii_in_metres() -> None:
    fences = pa.table({"query": ["disc", "bad"], "region": ["POINT(1 60)", "POLYGON(("], "radius": [1000.0, None]})
    (one,) = outlines_of(fences, earth=True)
    xs, ys = zip(*one["rings"][0], strict=True)
    assert max(ys) - min(ys) == pytest.approx(2 * 1000 / 111_195, rel=0.01)
    assert max(xs) - min(xs) == pytest.approx(2 * 2000 / 111_195, rel=0.01)  # degrees of longitude are half as long


def test_the_last_of_fences_with_one_name_is_drawn() -> None:
    """One that is no geometry does not take the place of another."""
    lines = [f"LINESTRING({x} 0, {x} 1)" for x in range(3)]
    fences = pa.table({"query": ["a", "b", "a", "a"], "region": [*lines, "LINESTRING("]})
    found = {one["name"]: one["rings"][0][0][0] for one in outlines_of(fences, earth=False)}
    assert found == {"a": 2.0, "b": 1.0}
    assert len(outlines_of(fences, earth=False)) == 2


class Came(NamedTuple):
    status: int
    headers: Any
    body: bytes


def get(address: str, path: str = "/", cookie: str = "", host: str | None = None) -> Came:
    connection = asked(address, path, cookie, host)
    with closing(connection), connection.getresponse() as came:
        return Came(came.status, came.headers, came.read())


def asked(address: str, path: str, cookie: str, host: str | None = None) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port or 0, timeout=60)
    connection.request("GET", path, headers={"Cookie": cookie} | ({} if host is None else {"Host": host}))
    return connection


def test_only_who_has_the_token_sees_the_page() -> None:
    feed = Feed(lambda: [{"type": "hello"}])
    with PageServer("<p>page</p>", feed) as server:
        address = server.address
        assert get(address).status == 403
        assert get(address, "/feed").status == 403
        assert get(address, "/?token=wrong").status == 403
        assert get(address, cookie="appulse=wrong").status == 403
        came = get(address, "/?token=" + server.token)
        assert (came.status, came.headers["Location"]) == (303, "/")
        cookie = (came.headers["Set-Cookie"] or "").partition(";")[0]
        assert {"HttpOnly", "SameSite=Strict"} <= set((came.headers["Set-Cookie"] or "").split("; "))
        page = get(address, cookie=cookie)
        assert (page.status, page.body) == (200, b"<p>page</p>")
        assert get(address, "/other", cookie).status == 404
        assert get(address, "/", cookie, host="evil.example:80").status == 403
        connection = asked(address, "/feed", cookie)
        with closing(connection), connection.getresponse() as stream:
            assert json.loads(stream.readline().removeprefix(b"data: ")) == {"type": "hello"}
            stream.readline()
            feed.publish({"x": 1})
            assert json.loads(stream.readline().removeprefix(b"data: ")) == {"x": 1}
            assert feed.listeners == 1


def test_a_browser_that_falls_behind_holds_nobody_up() -> None:
    feed = Feed(list)
    slow = feed.listen()
    threading.Thread(target=lambda: next(slow, None), daemon=True).start()
    end = time.monotonic() + 60
    while not feed.listeners:
        assert time.monotonic() < end
        time.sleep(0.01)
    for i in range(2000):
        feed.publish({"i": i})
    assert feed.listeners == 0


def test_the_page_loads_nothing_and_runs_its_scripts_alone() -> None:
    page = read(live_page(HOSTILE), libraries=1)
    assert "alert(1)" in page.said
    policy = next(
        value or "" for name, value in page.attributes if name == "content" and "default-src" in (value or "")
    )
    assert policy.endswith("connect-src 'self'")


def test_the_map_is_drawn_by_the_leaflet_that_was_looked_at() -> None:
    """As `npm pack leaflet@1.9.4` gives it; a new version is a new hash."""
    file = resources.files("appulse.report") / "leaflet" / "leaflet.js"
    known = "db49d009c841f5ca34a888c96511ae936fd9f5533e90d8b2c4d57596f4e5641a"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == known


@given(st.lists(st.tuples(st.floats(-180, 180), st.floats(-90, 90)), max_size=40), st.booleans())
def test_a_map_begins_with_the_middle_and_all_that_is_near(places: list[tuple[float, float]], fenced: bool) -> None:
    known = np.array([[0.0, 0.0], [1.0, 1.0]] if fenced else [], np.float64).reshape(-1, 2)
    found = boxes(np.array(places, np.float64).reshape(-1, 2), known)
    spans = []
    for axis in range(2):
        values = sorted(place[axis] for place in places)
        last = len(values) - 1
        low, high = (values[math.ceil(0.1 * last)], values[math.floor(0.9 * last)]) if values else (0, 0)
        room = 4 * (high - low) if high > low else math.inf
        spans.append((low - room, high + room))
    most = [place for place in places if all(a <= value <= b for value, (a, b) in zip(place, spans, strict=True))]
    assert found["outside"] == len(places) - len(most)
    for name, some in (("most", most), ("all", places)):
        shown = [*map(tuple, known.tolist()), *some]
        sides = [f(place[axis] for place in shown) for f in (min, max) for axis in range(2)] if shown else None
        assert found[name] == sides


def test_numbers_of_a_page_are_short() -> None:
    totals = {"rows": 12_345, "answers": 7, "rejects": 0}
    told = figures(totals, (2.25, 0.0), 3, {"candidates": 8, "pruned_reach": 6}, {"state_rows": 9}, behind=-0.1)
    assert dict(told) == {
        "rows a second": "2.2",
        "rows": "12,345",
        "answers a second": "0",
        "answers": "7",
        "rejects": "0",
        "things": "3",
        "seconds behind": "0.00",
        "rows held": "9",
        "candidate pairs": "8",
        "pruned by bounds": "75 %",
    }
    assert clock_text(1_500_000, stamped=True) == "1970-01-01 00:25:00"
    assert clock_text(1.5e300, stamped=True) == "1.5e+297"
    assert clock_text(1_500, stamped=False) == "1.5"


JOB = """\
engine = "local"
[sources.ships]
format = "replay"
path = "ships.parquet"
speed = "max"
key = "ship"
time = "at"
value = { model = "Position", lat = "lat", lon = "lon", sigma = 10.0 }
[fence_events.regions]
"the harbour" = "POLYGON((0.9 49.9, 1.2 49.9, 1.2 50.1, 0.9 50.1, 0.9 49.9))"
[sink]
format = "parquet"
path = "out"
"""


def test_a_browser_shows_what_happens(tmp_path: Path) -> None:
    names = [f"<b>{i}</b>" for i in range(5)]
    rows: dict[str, Any] = {"ship": [*names * 4, "far off"], "at": [float(i) for i in range(21)]}
    rows |= {"lat": [49.0] * 5 + [50.0] * 10 + [51.0, 51.1, 51.2, 51.3, 51.4] + [-60.0], "lon": [1.0] * 21}
    pq.write_table(pa.table(rows), tmp_path / "ships.parquet")
    (tmp_path / "job.toml").write_text(JOB)
    job = jobs.load(tmp_path / "job.toml")
    resident = Resident(job)
    board = Board([job], "ships")
    resident.on_step = board.watcher(0, resident)
    resident.run(drain=True)
    with PageServer(live_page("ships"), board.feed) as server:
        close_once_read(board.feed)
        page = shown_by(server.address, tmp_path / "profile")
    assert "&lt;b&gt;0&lt;/b&gt; enter the harbour · probability 1" in page
    assert "<b>21</b>rows" in page
    assert ">All, with 1 outside</button>" in page
    assert "fence events: as they happen" in page


#: Has the title of the page say what its state was.
STATES = """<script>
const states = [], state = document.getElementById("state");
new MutationObserver(() => {
  states.push(state.textContent);
  document.title = JSON.stringify(states);
}).observe(state, { childList: true });
</script><script>"""


@pytest.mark.parametrize("rows", [False, True])
def test_a_page_says_that_no_rows_have_come_yet(rows: bool, tmp_path: Path) -> None:
    shown = Shown("job", "encounters", [SHIPS])
    said: list[Any] = [{"type": "hello", "title": "ships", "jobs": [shown.hello]}]
    if rows:
        message = shown.message({"ships": ROWS})
        rejects = [{"reason": "late", "stream": "s", "key": "k", "detail": "d"}]
        message |= {"boxes": shown.boxes(message["things"]), "figures": [], "rejects": rejects}
        said.append(message | {"type": "step", "job": 0})
    feed = Feed(lambda: said)
    with PageServer(with_script(live_page("ships"), STATES), feed) as server:
        close_once_read(feed)
        page = shown_by(server.address, tmp_path)
    states = titled(page)
    assert states[0] == "Connected. No rows have been answered yet."
    assert ("Connected." in states) is rows
    assert ("<li>late: <bdi>s</bdi> <bdi>k</bdi> <bdi>d</bdi></li>" in page) is rows
