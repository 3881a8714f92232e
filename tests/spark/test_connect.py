"""What cannot be done on Spark Connect says so, with what to do; frames are played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import appulse as ap
from appulse.engines.spark import start
from appulse.engines.spark.sources import watermark_delay, with_watermark_delay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def played(*, streaming: bool) -> Any:
    """As little of a frame on Connect as is asked for: no JVM behind it, nor behind its session."""
    return SimpleNamespace(isStreaming=streaming, sparkSession=SimpleNamespace())


def test_lateness_is_asked_for_where_a_watermark_cannot_be_read() -> None:
    frame: DataFrame = played(streaming=True)
    stream = ap.Stream(frame, key="id", time="at", value="x", name="vans")
    with pytest.raises(ap.BadArgument, match=r"Stream 'vans' has a frame of Spark Connect.* give lateness="):
        with_watermark_delay(stream)
    assert watermark_delay(frame, "it", 0) is None
    assert watermark_delay(played(streaming=False), "it", None) is None


def test_start_says_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "own_result", lambda _: SimpleNamespace(bad_rows=None))
    sink: Any = ("noop", {})
    with pytest.raises(ap.SessionError, match=r"Spark Connect does not have\. Use result.writeStream"):
        start.start(played(streaming=True), sink, checkpoint="checkpoint")
