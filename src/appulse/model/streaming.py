"""Whether a frame of Spark's is a stream, without Spark.

Of Spark Connect that is read off the plan that its client holds, in the form in which it is sent: to ask the server
would be one more way there and back, and is forbidden in functions of Declarative Pipelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How Spark refuses what a function of a Declarative Pipeline may not ask.
FORBIDDEN = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"

#: Parts of a plan that only the server can read.
HIDDEN = frozenset({"SQL", "CachedRemoteRelation", "Any"})

_CONNECT = "pyspark.sql.connect.dataframe"
_KNOWN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def is_connect(frame: Any) -> bool:
    """Whether this is a frame of Spark Connect."""
    return any(kind.__module__ == _CONNECT for kind in type(frame).__mro__)


def is_streaming(frame: Any) -> bool:
    """Whether a frame is a stream of Spark's."""
    if not is_connect(frame):
        return bool(getattr(frame, "isStreaming", False))
    if frame not in _KNOWN:
        seen = [*sent(frame)]
        # Of fields without a presence of their own those that are set are listed.
        reads = any(field.name == "is_streaming" for _, part in seen for field, _ in part.ListFields())
        _KNOWN[frame] = reads or (any(kind in HIDDEN for kind, _ in seen) and _asked(frame))
    return _KNOWN[frame]


def sent(frame: Any, last: Callable[[str, Any], bool] = lambda _kind, _part: False) -> Iterator[tuple[str, Any]]:
    """The parts of the plan of a frame of Spark Connect by kind, from the top down to the last on each way."""
    waiting: list[Any] = [frame._plan.to_proto(frame.sparkSession.client)]  # noqa: SLF001 - as PySpark's pipelines do
    while waiting:
        part = waiting.pop()
        kind = part.DESCRIPTOR.name
        yield kind, part
        if last(kind, part):
            continue
        for field, value in part.ListFields():
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else [*value]


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
