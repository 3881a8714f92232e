"""What stands behind a result, and what all calls of the front door check."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import pyarrow as pa

from appulse.arguments import Kind, Unfit, checked, instance
from appulse.engines.spark.installation import need_spark
from appulse.errors import BadArgument
from appulse.model.stream import Result, Stream

if TYPE_CHECKING:
    from appulse.engines.call import AnyCall


def _framed(stream: Any) -> Stream:
    if not isinstance(stream, Stream):
        raise Unfit
    if stream.frame is None:
        raise Unfit("the stream has no frame. Streams without one are for calls by hand, such as ap.SimilarityJoin.")
    return stream


#: A stream over a frame.
FRAMED = Kind("a Stream. Wrap the frame: ap.Stream(frame, ...)", _framed)
Framed: TypeAlias = Annotated[Stream[Result], FRAMED]
#: A stream, whose rows may come later.
Described: TypeAlias = Annotated[
    Stream[Result], instance(Stream, "a Stream. Describe the stream: ap.Stream(None, ...)")
]


def _result(value: Any) -> Any:
    if not (isinstance(value, pa.Table) or is_spark(value)):
        raise Unfit
    return value


def _spark(value: Any) -> Any:
    if not is_spark(value):
        raise Unfit
    return value


_Result: TypeAlias = Annotated[Any, Kind("the result of a call, itself", _result)]
SparkResult: TypeAlias = Annotated[Any, Kind("the Spark frame that a call returned, itself", _spark)]

# Arrow tables take no attributes: what stands behind results is kept beside them.
_RESULTS: dict[int, tuple[weakref.ref[Any], pa.Table, AnyCall]] = {}


@checked
def rejects(result: _Result) -> Any:
    """The rows of a call that could not be used: ``stream, key, time, reason, detail, values`` (JSON).

    ``result`` is what the call returned, itself. On a streaming result this raises: `start` writes rejects there.
    """
    if isinstance(result, pa.Table):
        return kept(result)[1]
    from appulse.engines.spark.engine import rejects_of

    return rejects_of(result)


@checked
def explain(result: _Result) -> str:
    """Print, and return, how a call is carried out: streams, window, how probabilities come about, index, tiles.

    ``result`` is what the call returned, itself. Of a join in process it also tells the index that each stream's rows
    had and what others would have cost, expected and actual pairs and answers, and how many pairs each bound decided.
    Warns where a stream is the output of a join, whose answers are not independent where they share a row.
    """
    from appulse.engines.explain import explained

    if isinstance(result, pa.Table):
        lines = explained(kept(result)[2], None)
    else:
        from appulse.engines.spark.engine import result_of

        known = result_of(result)
        lines = explained(known.call, known.tiling.latest.tiles)
    text = "\n".join(lines)
    print(text)  # noqa: T201 - what it is for
    return text


def remember(result: pa.Table, rejected: pa.Table, call: AnyCall) -> None:
    """Keep what stands behind an in-process result for as long as the result lives."""
    number = id(result)
    _RESULTS[number] = (weakref.ref(result, lambda _: _RESULTS.pop(number, None)), rejected, call)


def kept(result: pa.Table) -> tuple[Any, pa.Table, AnyCall]:
    """What `remember` kept of a result: a reference to it, its rejects, its call."""
    found = _RESULTS.get(id(result))
    if found is None or found[0]() is not result:
        raise BadArgument("This table is not what a call of appulse returned. Pass the result itself, not a slice.")
    return found


def is_spark(frame: Any) -> bool:
    """Whether this is a Spark DataFrame, classic or Connect, without importing Spark.

    Raises `SessionError` if it is and the extra is not installed that Spark needs here.
    """
    spark = any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(frame).__mro__
    )
    if spark:
        need_spark()
    return spark
