"""What stands behind a result, and what all calls of the front door check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import pyarrow as pa

from appulse.arguments import Kind, Unfit, checked, instance
from appulse.engines.explain import Explanation
from appulse.engines.results import (
    MOST_BYTES,
    MOST_RECENT,
    Behind,
    TableResult,
    new_token,
    pieces_of,
    tokens_of,
    with_token,
)
from appulse.engines.spark.installation import need_spark
from appulse.errors import BadArgument
from appulse.model.stream import Result, Stream

if TYPE_CHECKING:
    from appulse.engines.base import Call


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
    if isinstance(value, Stream):
        raise Unfit("a stream is not a result: rows of it that cannot be used are rejects of the call that takes it.")
    if not (isinstance(value, pa.Table) or is_spark(value)):
        raise Unfit
    return value


def _spark(value: Any) -> Any:
    if not is_spark(value):
        raise Unfit
    return value


RESULT = Kind("the result of a call, itself", _result)
_Result: TypeAlias = Annotated[Any, RESULT]
SPARK = Kind("a Spark frame", _spark)
SparkResult: TypeAlias = Annotated[Any, Kind("the Spark frame that a call returned, itself", _spark)]

_TABLES: Behind[TableResult] = Behind()


@checked
def rejects(result: Annotated[Result, RESULT]) -> Result:
    """The rows of a call that could not be used.

    Arguments:
    * ``result``: the result of a call, also after selecting, filtering, slicing, sorting or renaming; the rejects are
      those of the whole call.

    Returns a Spark frame for Spark frames, else a `pyarrow.Table`, with the columns ``stream, key, time, reason,
    detail, values`` (JSON).

    Raises `BadArgument` for anything else, for a table that combines several results (`pyarrow.concat_tables`), and for
    a streaming result, whose rejects `start` writes. A combined table that was then sorted or copied into one chunk,
    and is not longer than the first result, cannot be recognised: it counts as part of that result.

    >>> rows = pa.table({"id": [1, 2], "t": [0, 1], "x": [0.0, float("nan")]})
    >>> pairs = ap.self_join(ap.Stream(rows, key="id", time="t", value="x"), epsilon=1, probability=1, window=10)
    >>> ap.rejects(pairs).select(["key", "reason", "detail"]).to_pylist()
    [{'key': 2, 'reason': 'non-finite value', 'detail': 'x is nan'}]
    """
    if isinstance(result, pa.Table):
        return cast("Result", kept(result).rejected)
    from appulse.engines.spark.results import rejects_of

    return cast("Result", rejects_of(cast("Any", result)))


@checked
def explain(result: _Result) -> Explanation:
    """How a call is carried out: streams, window, method of probabilities, index, tiles.

    Arguments:
    * ``result``: as in `rejects`; it may be streaming.

    Returns an `Explanation`: text, a table in a notebook, and fields. For a join in process it includes the index of
    each stream and the cost of others, expected and actual pairs and answers, and how many pairs each bound decided. It
    warns if a stream is the output of a join, because answers that share a row are not independent.

    Raises `BadArgument` for anything that is not the result of a call.

    >>> rows = pa.table({"id": [1, 2], "t": [0, 1], "x": [0.0, 0.5]})
    >>> pairs = ap.self_join(ap.Stream(rows, key="id", time="t", value="x"), epsilon=1, probability=1, window=10)
    >>> ap.explain(pairs).steps["window"]
    'rows at most 10 s old'
    """
    if isinstance(result, pa.Table):
        return Explanation.of(kept(result).call, None)
    from appulse.engines.spark.results import result_of

    known = result_of(result)
    return Explanation.of(known.call, known.tiling.latest.tiles)


def remember(result: pa.Table, rejected: pa.Table, call: Call[Any]) -> pa.Table:
    """The result with what stands behind it, which is found by it and by what is made of it."""
    token = new_token()
    marked = with_token(result, token)
    _TABLES.keep(token, marked, TableResult.of(marked, rejected, call), rejected.get_total_buffer_size())
    return marked


def kept(result: pa.Table) -> TableResult:
    """What `remember` kept of a result."""
    tokens = tokens_of(result)
    if not tokens:
        raise BadArgument(
            "This table is not what a call of appulse returned, or has lost that: a cast to a schema, a join of tables "
            "or a way through pandas or Polars drops the metadata of columns. Pass the result itself."
        )
    if len(tokens) > 1:
        raise BadArgument(f"This table has columns of {len(tokens)} results. Pass one of them itself.")
    found = _TABLES.find(tokens[0])
    if found is None:
        raise BadArgument(
            f"The result behind this table is gone: it is of another process, or no longer held and not among the "
            f"latest {MOST_RECENT} with at most {MOST_BYTES >> 20} MiB of rejects. Hold the result itself, and pass it."
        )
    if not found.holds(result):
        raise BadArgument(
            f"This table was put together of several results or parts: it has {len(result):,} rows in "
            f"{pieces_of(result)} pieces, and what is made of its first result has at most {found.rows:,} in "
            f"{found.pieces}. Pass each result itself."
        )
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
