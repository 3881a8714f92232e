"""AIS and SBS-1: lines as rows, and what is none as rejects with the line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import appulse as ap
from appulse import jobs
from appulse.connect.decoders import decode_lines
from appulse.jobs.resident import Resident

if TYPE_CHECKING:
    from pathlib import Path

SHIP = "!AIVDM,1,1,,B,15NG6V0P01G?cFhE`R2IU?wn28R>,0*05"
STATIC = (
    "!AIVDM,2,1,4,A,55O0W7`00001L@gCWGA2uItLth@DqtL5@F22220j1h742t0Ht0000000,0*08",
    "!AIVDM,2,2,4,A,000000000000000,2*20",
)
AIRCRAFT = "MSG,3,1,1,4CA2D6,1,2016/01/12,13:04:0{},2016/01/12,13:04:03.000,,37000,,,51.45{},-0.97{},,,0,0,0,0"
MOVES = "MSG,4,1,1,4ca2d6,1,2016/01/12,13:04:01,2016/01/12,13:04:01,,,420.5,271.0,,,64,,,,,0"


def test_ais_is_decoded() -> None:
    pytest.importorskip("pyais")
    lines = [rf"\c:1452604327,s:x*5F\{SHIP}", *STATIC, "", rf"\s:y,c:1452604328500*00\{SHIP}", SHIP]
    found = decode_lines("ais", lines)
    assert found.unreadable == []
    first, second, third = found.rows.to_pylist()
    assert (first["mmsi"], first["lat"], first["lon"]) == (367380120, 37.806948, -122.404333)
    assert (first["speed"], first["course"], first["heading"]) == (0.1, 245.2, None)
    assert first["time"].isoformat() == "2016-01-12T13:12:07+00:00"
    assert second["time"].isoformat() == "2016-01-12T13:12:08.500000+00:00"
    assert third["time"] is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (SHIP.replace("*05", "*06"), "checksum"),
        ("hello", "hello"),
        ("!AIVDM,1,1,,B,15NG6V,0*48", "ends before its position"),
        (STATIC[1], "does not follow"),
        (STATIC[0], "the others did not"),
        ("!AIVDM,1,1,,B,,0*25", ""),
        ("\\c:1*\\", ""),
        ("!AIVDM,9,x,,,,", "does not follow"),
        ("�" * 1000, ""),
    ],
)
def test_what_is_no_ais_is_kept_with_its_reason(line: str, why: str) -> None:
    pytest.importorskip("pyais")
    ((at, bad),) = decode_lines("ais", [SHIP, line]).unreadable
    assert at == 1
    assert why in bad.detail.lower() or why in bad.detail
    assert bad.text == line[:400]
    assert len(bad.detail) <= 400


def test_sbs_is_decoded() -> None:
    lines = [AIRCRAFT.format("0.250", 1, 2), MOVES, AIRCRAFT.format(2, 3, 4), "STA,,1,1,4CA2D6,1", "#"]
    found = decode_lines("sbs", lines)
    assert found.unreadable == []
    first, second = found.rows.to_pylist()
    assert (first["hex"], first["lat"], first["lon"], first["altitude"]) == ("4CA2D6", 51.451, -0.972, 37000.0)
    assert first["time"].isoformat() == "2016-01-12T13:04:00.250000+00:00"
    assert (first["speed"], second["speed"], second["track"], second["ground"]) == (None, 420.5, 271.0, False)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("MSG,3,1", "3 fields of 22"),
        ("GSM,3", "first field"),
        (AIRCRAFT.format("x", 1, 2), "unconverted"),
        (AIRCRAFT.format(1, "x", 2), "convert"),
        (AIRCRAFT.format(1, 1, 1).replace("4CA2D6", "ship"), "invalid literal"),
    ],
)
def test_what_is_no_sbs_is_kept_with_its_reason(line: str, why: str) -> None:
    ((_, bad),) = decode_lines("sbs", [line]).unreadable
    assert why in bad.detail
    assert bad.text == line


JOB = """\
engine = "local"
[sources.planes]
format = "replay"
path = "planes.log"
decode = "sbs"
speed = "max"
key = "hex"
time = "time"
value = { model = "Position", lat = "lat", lon = "lon", sigma = 50.0 }
[match_queries]
probability = 0.5
conditions = { north = "lat > 51.4525" }
[sink]
format = "parquet"
path = "out"
[rejects]
format = "json"
path = "bad"
"""


def test_a_job_decodes_and_rejects_what_it_cannot(tmp_path: Path) -> None:
    lines = ["first", *(AIRCRAFT.format(i, i, i) for i in range(5)), "MSG,3", AIRCRAFT.format(6, 6, 6), "last"]
    (tmp_path / "planes.log").write_text("\n".join(lines))
    (tmp_path / "job.toml").write_text(JOB)
    Resident(jobs.load(tmp_path / "job.toml")).run(drain=True)
    assert ds.dataset(tmp_path / "out").to_table().num_rows == 3
    bad = [json.loads(line) for file in (tmp_path / "bad").glob("*.json") for line in file.read_text().splitlines()]
    assert [(one["stream"], one["reason"], one["values"]) for one in bad] == [
        ("planes", "cannot be decoded", text) for text in ("first", "MSG,3", "last")
    ]
    (tmp_path / "planes.log").write_text("nothing")
    with pytest.raises(ap.JobError, match="no position of sbs"):
        Resident(jobs.load(tmp_path / "job.toml"))
