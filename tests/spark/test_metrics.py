"""Figures of micro-batches: told once each, right, to functions and to Prometheus, by whatever way a query is run."""

from __future__ import annotations

import logging
import re
import socket
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

import appulse as ap
from appulse.engines.measured import METRICS
from appulse.engines.spark.metrics import _Listener
from appulse.engines.spark.prometheus import Page
from tests.cli.test_cli import call, job
from tests.cli.test_jobs import rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["job"]


def pairs(spark: SparkSession, folder: Path) -> DataFrame:
    """A streaming join of two streams of two files each."""
    streams = []
    for seed, name in enumerate(("near", "far"), 1):
        if not (folder / name).exists():
            (folder / name).mkdir()
            for part in range(2):
                rows(seed)[part * 60 : part * 60 + 60].to_parquet(folder / name / f"{part}.parquet")
        read = spark.readStream.schema("id long, time double, x double, y double").option("maxFilesPerTrigger", 1)
        value = ap.Gaussian("x", "y", sigma=1.0)
        streams.append(ap.Stream(read.parquet(str(folder / name)), key="id", time="time", value=value, name=name))
    result: DataFrame = ap.similarity_join(*streams, epsilon=5.0, probability=0.5, window=ap.TimeWindow("10 seconds"))
    return result


def scraped(address: str) -> dict[tuple[str, str], float]:
    """What Prometheus would read, by figure and name of the query."""
    with urlopen(address) as page:  # noqa: S310 - our own page
        lines = page.read().decode().splitlines()
    parsed = [re.fullmatch(r'(\w+)\{name="(\w*)",query_id="[-0-9a-f]+"\} (\S+)', line) for line in lines]
    return {(m[1], m[2]): float(m[3]) for m in parsed if m}


class Told:
    """Two queries over the same rows, one by ``writeStream`` and one by ``start``, and all that was told of them."""

    def __init__(self, spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.batches: list[dict[str, Any]] = []
        self.failures = 0
        self.answers, self.last = {}, {}
        with (
            ap.listen(spark, self.batches.append),
            ap.listen(spark, self._fail),
            ap.listen(spark, prometheus=0) as page,
            caplog.at_level(logging.ERROR, "appulse"),
        ):
            for way in ("written", "started"):
                query = getattr(self, f"_{way}")(pairs(spark, folder), folder / way)
                query.awaitTermination()
                self.answers[way] = spark.read.parquet(str(folder / way / "pairs")).count()
                self.last[way] = query.recentProgress
            deadline = time.monotonic() + 60
            self.page: dict[tuple[str, str], float] = {}
            while [self.page.get(("appulse_batches_total", name), 0) for name in ("written", "")] != [
                len(progress) for progress in self.last.values()
            ]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                self.page = scraped(page.address)
        self.logged = list(caplog.records)

    def _fail(self, batch: dict[str, Any]) -> None:
        batch.clear()
        self.failures += 1
        raise KeyError("trouble of the user's")

    def _written(self, result: DataFrame, folder: Path) -> Any:
        writer = result.writeStream.format("parquet").queryName("written").option("path", str(folder / "pairs"))
        return writer.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True).start()

    def _started(self, result: DataFrame, folder: Path) -> Any:
        sinks = [(kind, {"path": str(folder / name)}) for kind, name in (("parquet", "pairs"), ("json", "rejects"))]
        return ap.start(result, *sinks, checkpoint=str(folder / "c"), trigger={"availableNow": True})


@pytest.mark.every_version
def test_each_batch_is_told_once_and_right(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To a function, in progress reports, to Prometheus; one who fails disturbs nobody, and is told of once."""
    told = Told(spark, tmp_path, caplog)
    for way, name in (("written", "written"), ("started", None)):
        batches = [batch for batch in told.batches if batch["name"] == name]
        assert [batch["batch_id"] for batch in batches] == list(range(len(batches)))
        assert len({batch["query_id"] for batch in batches}) == 1
        sums = {key: sum(batch[key] for batch in batches) for key in ("input_rows", "rows", "rejected", "answers")}
        assert sums == {"input_rows": 240, "rows": 238, "rejected": 2, "answers": told.answers[way]}
        assert all(type(batch["candidates"]) is int and batch["batch_seconds"] > 0 for batch in batches)
        assert all(batch["state_rows"] > 0 and batch["state_bytes"] > 0 for batch in batches)
        reported = [sum(o["answers"] for o in progress["observedMetrics"].values()) for progress in told.last[way]]
        assert reported == [batch["answers"] for batch in batches]
        page = {key: value for (key, query), value in told.page.items() if query == (name or "")}
        assert page["appulse_batches_total"] == len(batches) == len(told.last[way])
        assert page["appulse_answers_total"] == told.answers[way] > 0
        assert page["appulse_seconds_total"] == pytest.approx(sum(batch["seconds"] for batch in batches))
        assert page["appulse_state_rows"] == batches[-1]["state_rows"]
    assert told.failures == len(told.batches)
    (record,) = told.logged
    assert "given to appulse.listen" in record.getMessage()
    assert "trouble of the user's" in str(record.exc_info)


def event(batch: int, figures: dict[str, float | None] | None, **more: Any) -> QueryProgressEvent:
    told: dict[str, Any] = {
        "id": "00000000-0000-0000-0000-000000000001",
        "runId": "00000000-0000-0000-0000-000000000002",
        "name": None,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": batch,
        "batchDuration": 1500,
        "durationMs": {"addBatch": 1},
        "stateOperators": [],
        "sources": [],
        "sink": {"description": "", "numOutputRows": 0},
        "numInputRows": 3,
        "observedMetrics": {} if figures is None else {"appulse 1": figures},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(told | more))


def test_what_waits_in_kafka_is_reported_and_nothing_of_other_sources() -> None:
    def source(taken: str, newest: str) -> dict[str, Any]:
        place = {"description": "", "startOffset": "null", "endOffset": taken, "latestOffset": newest}
        return place | {"numInputRows": 1, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}

    seen: list[dict[str, Any]] = []
    listener = _Listener(seen.append)
    figures: dict[str, float | None] = {"rows": 3.0, "state_rows": 9.0, "seconds": 0.5}
    topics = source('{"a": {"0": 3, "1": 4}}', '{"a": {"0": 13, "1": 4, "2": 5}}')
    for sources in ([topics, topics], [topics, source('{"logOffset":1}', '{"logOffset":2}')], [source("null", "null")]):
        listener.onQueryProgress(event(len(seen), figures, sources=sources))
    assert [batch.get("messages_waiting") for batch in seen] == [30, 15, None]


def test_state_goes_on_where_a_batch_without_rows_tells_none() -> None:
    seen: list[dict[str, Any]] = []
    listener = _Listener(seen.append)
    nothing = {"rows": 0.0, "late": None, "state_rows": None, "state_bytes": None, "seconds": 0.0}
    listener.onQueryProgress(event(0, nothing))
    listener.onQueryProgress(
        event(1, {"rows": 3.0, "late": 1.0, "state_rows": 9.0, "state_bytes": 99.0, "seconds": 0.5})
    )
    listener.onQueryProgress(event(2, nothing))
    listener.onQueryProgress(event(3, nothing, durationMs={}))  # only looked for input
    listener.onQueryProgress(event(3, None))  # somebody else's
    assert [(b["batch_id"], b["rows"], b["late"], b["state_rows"], b["state_bytes"]) for b in seen] == [
        (0, 0, 0, 0, 0),
        (1, 3, 1, 9, 99),
        (2, 0, 0, 9, 99),
    ]
    assert (seen[1]["seconds"], seen[1]["batch_seconds"], seen[1]["timestamp"][:4]) == (0.5, 1.5, "2026")
    listener.onQueryTerminated(QueryTerminatedEvent(event(0, None).progress.id, event(0, None).progress.id, None, None))
    listener.onQueryProgress(event(4, nothing))
    assert seen[-1]["state_rows"] == 0


def test_what_cannot_be_listened_to_is_said(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        for arguments, said in (
            ({}, "has nobody to report to"),
            ({"on_batch": 3}, r"on_batch=3\): give a function of the metrics"),
            ({"prometheus": "http"}, "prometheus='http' is not a port"),
            ({"prometheus": True}, r"prometheus=True\): give a port"),
            ({"prometheus": 99_999}, "cannot be served: .*0-65535"),
            ({"prometheus": f"localhost:{taken}"}, f"localhost:{taken}' cannot be served: .*in use"),
        ):
            with pytest.raises(ap.BadArgument, match=said):
                ap.listen(spark, **arguments)
    monkeypatch.delitem(sys.modules, "appulse.engines.spark.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ap.BadArgument, match=r"pip install prometheus-client .*appulse\[prometheus\]"):
        ap.listen(spark, prometheus=0)


def test_a_job_serves_its_figures(job: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = import_module("appulse.cli.run")  # by its name: the package has the function under it
    watch = command.watch
    seen: dict[tuple[str, str], float] = {}

    def watch_and_scrape(*arguments: Any) -> Any:
        totals = watch(*arguments)
        deadline = time.monotonic() + 60
        while seen.get(("appulse_input_rows_total", job.stem)) != totals.rows:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            seen.update(scraped(f"http://127.0.0.1:{port}/metrics"))
        return totals

    monkeypatch.setattr(command, "watch", watch_and_scrape)
    told = call("run", job, "--once", "--prometheus", port)
    assert told.exit_code == 0, told.output
    assert f"Figures for Prometheus: http://127.0.0.1:{port}/metrics" in told.output
    assert seen["appulse_rejected_total", job.stem] == 2
    assert time.time() - 60 < seen["appulse_last_batch_timestamp_seconds", job.stem] < time.time() + 1


def test_lag_and_the_newest_event_are_reported() -> None:
    """Of the latest batch that had rows; times that are numbers are no clock on a wall."""
    seen: list[dict[str, Any]] = []
    page = Page(0, "ships")
    try:
        listener = _Listener(seen.append, page.add)
        figures: dict[str, float | None] = {"rows": 3.0, "seconds": 0.5}
        for number, newest in enumerate(("2025-12-31T23:59:30.000Z", None, "1970-01-01T00:00:10.000Z")):
            times = {} if newest is None else {"eventTime": {"max": newest}}
            listener.onQueryProgress(event(number, figures, **times))
            if number == 1:
                shown = {name: value for (name, query), value in scraped(page.address).items() if query == "ships"}
    finally:
        page.close()
    assert [(batch["event_time"], batch["lag_seconds"]) for batch in seen] == [
        ("2025-12-31T23:59:30.000Z", 30.0),
        (None, None),
        ("1970-01-01T00:00:10.000Z", None),
    ]
    began = 1_767_225_600.0
    assert shown["appulse_lag_seconds"] == 30.0
    assert shown["appulse_newest_event_timestamp_seconds"] == began - 30.0
    assert shown["appulse_last_batch_timestamp_seconds"] == began + 1.5


def test_each_figure_says_what_it_is() -> None:
    page = Page(0)
    try:
        own = {"lag_seconds": 1.0, "messages_waiting": 3, "event_time": "2026-01-01T00:00:00.000Z"}
        own |= {"timestamp": "2026-01-01T00:00:01.000Z", "batch_id": 3, "batch_seconds": 0.5, "input_rows": 3}
        known = dict.fromkeys(set(METRICS) - {"tile", "newest"}, 1.0)
        page.add({"query_id": "q", "name": None, **known, **own})
        with urlopen(page.address) as served:  # noqa: S310 - our own page
            text = served.read().decode()
    finally:
        page.close()
    helped = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    assert len(helped) > 30
    assert len(set(helped.values())) == len(helped)
    for name, said in helped.items():
        assert said.endswith(".")
        assert said[0].isupper()
        assert "micro-batches so far" not in said
        for unit in ("seconds", "bytes"):
            assert unit not in name or unit in said.lower()
