"""Whether a frame of Spark's is a stream, without Spark."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from appulse.errors import BadArgument

#: How Spark refuses what a function of a Declarative Pipeline may not ask.
FORBIDDEN = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"

_CONNECT = "pyspark.sql.connect.dataframe"
# Parts of a plan that only the server can read.
_HIDDEN = ("spark.connect.SQL", "spark.connect.CachedRemoteRelation", "google.protobuf.Any")
_KNOWN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def is_connect(frame: Any) -> bool:
    """Whether this is a frame of Spark Connect."""
    return any(kind.__module__ == _CONNECT for kind in type(frame).__mro__)


def is_streaming(frame: Any) -> bool:
    """Whether a frame is a stream of Spark's.

    Of Spark Connect that is read off the plan that its client holds, as it is sent: to ask the server would be one more
    way there and back, and is forbidden in functions of Declarative Pipelines.
    """
    if not is_connect(frame):
        return bool(getattr(frame, "isStreaming", False))
    if frame not in _KNOWN:
        plan: Any = frame._plan.to_proto(frame.sparkSession.client)  # noqa: SLF001 - PySpark's own pipelines read it so
        found = _reads(plan)
        _KNOWN[frame] = _asked(frame) if found is None else found
    return _KNOWN[frame]


def _asked(frame: Any) -> bool:
    try:
        return bool(frame.isStreaming)
    except Exception as refused:
        if FORBIDDEN not in str(refused):
            raise
        raise BadArgument(
            "A frame is made by spark.sql, or by something else that only Spark's server can read, and a function of a "
            "pipeline cannot ask whether it is a stream. Read it by spark.readStream.table(...), or by "
            "spark.read.table(...)."
        ) from refused


def _reads(message: Any) -> bool | None:
    """Whether a part of a plan reads a stream; None if the client cannot know."""
    if message.DESCRIPTOR.full_name in _HIDDEN:
        return None
    found: bool | None = False
    for field, value in message.ListFields():
        if field.name == "is_streaming":
            return True  # of fields without a presence of their own those that are set are listed
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in (value,) if hasattr(value, "DESCRIPTOR") else value:
            reads = _reads(part)
            if reads:
                return True
            found = None if reads is None else found
    return found
