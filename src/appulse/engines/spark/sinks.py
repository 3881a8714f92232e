"""Where the batches of a query go: files, tables, topics, and functions of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql import types as T  # noqa: N812

from appulse.engines.appending import not_appended
from appulse.engines.spark.delta import DeltaSink
from appulse.engines.spark.file_sink import FileSink
from appulse.engines.spark.iceberg import IcebergSink
from appulse.engines.spark.messages import TIMES, check_columns, encoded
from appulse.errors import BadArgument, SessionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Wanted = Callable[[], bool]
Rows = Callable[[], int]
_FILES = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
_SPACES = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
_APPENDED = _FILES | {"delta", "iceberg"}


@dataclass(frozen=True)
class Sink:
    """What writes batches, with their number.

    ``wanted`` says whether a batch is to be written, and ``rows`` how many rows it has. A sink that reads ``once``
    reads all rows of each batch, in one job, and asks behind it; so a batch has to be worked out for it once, and need
    not be kept. Any other sink asks first, and may read a batch as often as it likes, in part or not at all.
    """

    write: Callable[[DataFrame, int, Wanted, Rows], object]
    once: bool = False
    columns: Sequence[str] = ()  # those that its options name


def sink_of(sink: Any, role: str, query: str, *, remote: bool = False) -> Sink:
    """What writes to the sink that a user named; ``query`` names this checkpoint's query among others.

    ``remote`` is whether Spark's driver is elsewhere, as on Spark Connect.
    """
    if callable(sink):
        return _asking(sink)
    kind, options = _given(sink, role)
    if kind in _FILES:
        path = _taken(options, "path", f"{role}={sink!r}", f"({kind!r}, {{'path': 'out/pairs'}})")
        return Sink(FileSink(kind, _as_text(kind, options), path, query).write, once=True)
    if kind == "jdbc":
        if missing := sorted({"url", "dbtable"} - {name.lower() for name in options}):
            raise BadArgument(
                f"{role}=('jdbc', ...) has no {' and no '.join(map(repr, missing))}. Give both: "
                "('jdbc', {'url': 'jdbc:postgresql://host/base', 'dbtable': 'pairs'})."
            )
        if remote:
            raise SessionError(
                f"{role}=('jdbc', ...) is written exactly once over a connection of the driver's own JVM, which Spark "
                "Connect does not have. Write to a file, Delta, Iceberg or Kafka; or run the job beside the cluster: "
                "appulse run --master."
            )
        from appulse.engines.spark.jdbc import known_driver, replace_rows  # of the JVM

        if "driver" not in {name.lower() for name in options} and (driver := known_driver(options)):
            options["driver"] = driver
        return _asking(lambda frame, number: replace_rows(frame, options, query, number))
    if kind == "delta":
        delta = DeltaSink(options, role, query)
        return replace(_asking(delta.write), columns=delta.partitions)
    if kind == "iceberg":
        table = _taken(options, "table", f"{role}={sink!r}", "('iceberg', {'table': 'lake.db.pairs'})")
        return _asking(IcebergSink(table, options, f"{role}-{query}").write)
    if kind == "kafka":
        key = options.pop("key", None)
        topic = Sink(lambda frame, number, *_: _append(encoded(frame, query, number, key), kind, options), once=True)
        return topic if key is None else replace(topic, columns=(key,))
    if kind == "noop":
        return Sink(lambda frame, *_: _append(frame, kind, options), once=True)
    return _asking(lambda frame, number: _append(_with_id(frame, kind, number), kind, options))


def check_sink(sink: Any, role: str, columns: Sequence[str], *, remote: bool) -> None:
    """Raise `BadArgument` or `SessionError` for a sink that cannot take rows of these columns."""
    if named := sink_of(sink, role, "", remote=remote).columns:
        check_columns(f"{role}=({sink[0]!r}, ...)", named, columns)


def _as_text(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options that write whole times and, in CSV, all of each text as RFC 4180 has it, unless the user has others."""
    given = {name.lower(): value for name, value in options.items()}
    usual: dict[str, Any] = {}
    if kind in ("json", "csv") and "timestampformat" not in given:
        usual |= TIMES
    if kind == "csv":  # Spark's own are a backslash before a quote, and texts without spaces around them
        usual |= {"escape": given.get("quote", '"'), **dict.fromkeys(_SPACES, False)}
    return {name: value for name, value in usual.items() if name.lower() not in given} | options


def _given(sink: Any, role: str) -> tuple[str, dict[str, Any]]:
    """The format and the options of a sink, without options that are methods of Spark's writer.

    Spark would pass over these in silence.
    """
    if not (
        isinstance(sink, tuple | list) and len(sink) == 2 and isinstance(sink[0], str) and isinstance(sink[1], dict)
    ):
        raise BadArgument(
            f"{role}={sink!r}: give a ('format', {{options}}) pair such as ('parquet', {{'path': 'out/pairs'}}), "
            "or a function of (batch frame, batch id)."
        )
    kind, options = sink[0].lower(), dict(sink[1])
    if kind not in _APPENDED:
        return kind, options
    if wrong := not_appended(kind, options):
        raise BadArgument(f"{role}=({kind!r}, ...) {wrong}")
    return kind, {name: value for name, value in options.items() if name.lower() != "mode"}


def _taken(options: dict[str, Any], name: str, given: str, example: str) -> str:
    if (value := options.pop(name, None)) is None:
        raise BadArgument(f"{given} has no {name!r}. Give one: {example}.")
    return str(value)


def _asking(write: Callable[[DataFrame, int], object]) -> Sink:
    return Sink(lambda frame, number, wanted, _: write(frame, number) if wanted() else None)


def _with_id(frame: DataFrame, kind: str, number: int) -> DataFrame:
    """Sinks that may see a batch twice get its number."""
    return frame if kind == "console" else frame.withColumn("batch_id", F.lit(number).cast(T.LongType()))


def _append(frame: DataFrame, kind: str, options: dict[str, Any]) -> None:
    frame.write.format(kind).options(**options).mode("append").save()
