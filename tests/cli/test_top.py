"""``appulse top``: what a run has written of its micro-batches, or a page of its figures, in the terminal."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from appulse.cli import app
from appulse.cli.following import ProgressFile, Tail, progress_file
from appulse.cli.progress import Batch
from appulse.cli.top import figures, spark
from appulse.engines.measured import METRICS
from appulse.engines.spark.prometheus import Page

ROOT = Path(__file__).resolve().parents[2]


def batch(number: int, **metrics: float) -> Batch:
    usual = {"answers": 30.0, "rejected": 2.0, "candidates": 100.0, "pruned_mass": 60.0, "refined": 40.0}
    usual |= {"state_rows": 500.0 + number, "state_bytes": 1e6}
    return Batch(number, 100, 0.5, 200.0, "2026-01-01T00:00:00.000Z", 3.0, usual | metrics)


def written(folder: Path, count: int = 30) -> Path:
    file = progress_file(str(folder / "checkpoint"))
    assert file is not None
    progress = ProgressFile(file)
    for number in range(count):
        progress.add(batch(number))
    return file


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_figures_of_a_run_are_those_of_its_batches(tmp_path: Path) -> None:
    written(tmp_path)
    done = call("top", tmp_path / "checkpoint", "--once", "--json")
    assert done.exit_code == 0, done.output
    known = json.loads(done.stdout)
    assert (known["batches"], known["batch"], known["rows"], known["answers"]) == (30, 29, 3000, 900)
    assert (known["rows_per_second"], known["answers_per_second"]) == (200, 60)
    assert (known["state_rows"], known["lag_seconds"], known["rejected"]) == (529, 3.0, 60)
    assert known["pruning"] == {"mass": 0.6, "refined": 0.4}
    assert 0 <= known["seconds_ago"] < 60


def test_a_new_checkpoint_of_the_same_name_begins_anew(tmp_path: Path) -> None:
    written(tmp_path)
    tail = Tail(written(tmp_path, 3))  # the checkpoint was removed
    assert (tail.look().count, tail.run.sums["answers"]) == (3, 90)
    written(tmp_path, 2)
    assert (tail.look().count, tail.run.sums["answers"]) == (2, 60)


def test_the_view_has_the_figures(tmp_path: Path) -> None:
    written(tmp_path)
    done = call("top", tmp_path / "checkpoint", "--once")
    assert done.exit_code == 0, done.output
    for said in ("batch 29", "rows/s", "200", "529", "1.0 MB", "60.0%", "mass", "900", "3.0 s behind"):
        assert said in done.output, said


def test_a_file_is_followed_as_it_grows_and_goes_on_in_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appulse.cli.following._MOST_BYTES", 4_000)
    file = tmp_path / "c.progress.jsonl"
    progress, tail = ProgressFile(file), Tail
    progress.add(batch(0))
    following = tail(file)
    assert following.look().count == 1
    for number in range(1, 30):
        progress.add(batch(number))
        following.look()
    with file.open("a") as torn:
        torn.write('{"at": "2026-')
    assert following.look().count == 30
    assert file.with_name("c.progress.jsonl.1").exists()


def test_what_cannot_be_written_does_not_stop_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    progress = ProgressFile(tmp_path / "file" / "c.progress.jsonl")
    progress.add(batch(0))


def page_of(count: int) -> Page:
    page = Page(0)
    for number in range(count):
        numbers = {"input_rows": 100, "batch_seconds": 0.5, "batch_id": number, **batch(number).metrics}
        page.add({"query_id": "q", "name": None, **numbers})
    return page


def test_a_page_of_figures_is_followed_too() -> None:
    page = page_of(4)
    try:
        done = call("top", page.address, "--once", "--json")
        drawn = call("top", page.address, "--once").output
    finally:
        page.close()
    known = json.loads(done.stdout)
    # These batches do not say when they were.
    assert known["seconds_ago"] is None
    assert " ago" not in drawn
    assert (known["batches"], known["rows"], known["answers"], known["state_rows"]) == (4, 400, 120, 503)
    assert known["rows_per_second"] == 200
    assert known["pruning"] == {"mass": 0.6, "refined": 0.4}


def test_a_page_says_when_its_latest_batch_was_and_how_far_behind() -> None:
    """Of several queries the latest, and the furthest behind; nothing is added up."""
    page = Page(0)
    now = datetime.now(UTC)
    try:
        for query, lag in (("q", 30), ("r", 90)):
            times = {"timestamp": (now - timedelta(seconds=5)).isoformat(), "lag_seconds": float(lag)}
            times |= {"event_time": (now - timedelta(seconds=5 + lag)).isoformat(), "batch_seconds": 1.0}
            page.add({"query_id": query, "name": None, "batch_id": 7, "input_rows": 10, **times, **batch(0).metrics})
        known = json.loads(call("top", page.address, "--once", "--json").stdout)
    finally:
        page.close()
    assert 4 <= known["seconds_ago"] < 60
    assert (known["lag_seconds"], known["batch"]) == (90, 7)
    assert abs(datetime.fromisoformat(known["event_time"]) - now + timedelta(seconds=35)) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere", "no run has written its progress there"), ("http://127.0.0.1:1/metrics", "does not answer")],
)
def test_where_nothing_runs_is_told(tmp_path: Path, place: str, said: str) -> None:
    done = call("top", place if place.startswith("http") else tmp_path / place, "--once")
    assert done.exit_code == 2
    assert said in done.output.replace("\n", " ")


def test_a_run_that_was_silent_for_long_is_told(tmp_path: Path) -> None:
    line = {"at": (datetime.now(UTC) - timedelta(hours=5)).isoformat(), **batch(0).as_dict()}
    (tmp_path / "c.progress.jsonl").write_text(json.dumps(line) + "\n")
    assert figures(Tail(tmp_path / "c.progress.jsonl").look())["seconds_ago"] > 17_000
    assert "5 h ago" in call("top", tmp_path / "c", "--once").output


def test_a_picture_for_a_page(tmp_path: Path) -> None:
    written(tmp_path)
    done = call("top", tmp_path / "checkpoint", "--once", "--picture", tmp_path / "top.svg")
    assert done.exit_code == 0, done.output
    drawn = (tmp_path / "top.svg").read_text()
    assert "batch&#160;29" in drawn
    assert "font-face" not in drawn


def test_small_bars() -> None:
    assert spark([0, 4, 8]) == "▁▅█"
    assert spark([0, 0]) == "▁▁"
    assert spark([]) == ""


def test_the_dashboard_names_what_is_exported() -> None:
    page = Page(0)
    known = dict.fromkeys(METRICS, 1.0)
    times = {"timestamp": "2026-01-01T00:00:01.000Z", "event_time": "2026-01-01T00:00:00.000Z", "lag_seconds": 1.0}
    page.add({"query_id": "q", "name": None, "batch_id": 1, "input_rows": 1, "batch_seconds": 1.0, **times, **known})
    registry = CollectorRegistry()
    registry.register(page)
    exported = set(re.findall(r"^(appulse_\w+)\{", generate_latest(registry).decode(), re.MULTILINE))
    page.close()
    text = (ROOT / "deploy" / "grafana.json").read_text()
    board = json.loads(text)
    named = set(
        re.findall(r"appulse_\w+", " ".join(target["expr"] for p in board["panels"] for target in p["targets"]))
    )
    assert named <= exported, named - exported
    assert {"appulse_input_rows_total", "appulse_state_bytes", "appulse_lag_seconds"} <= named
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])
    assert {"label_values(appulse_batches_total, query_id)"} == {
        v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"
    }
