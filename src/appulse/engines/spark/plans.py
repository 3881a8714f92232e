"""Spark's own plan of a frame: found out what it rests on, and put together anew.

There is no public door to a logical plan, so this is where the private ones are.
"""

from __future__ import annotations

import json
from contextlib import suppress
from operator import is_
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from appulse.engines.measured import END
from appulse.engines.results import names_of_metrics
from appulse.errors import BadArgument, SessionError
from appulse.model.streaming import HIDDEN, is_connect, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

_OBSERVED = "CollectMetrics"
_WATERMARK = "EventTimeWatermark"
_STREAM, _KAFKA = "StreamingRelationV2", "kafka"
_FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_ALIAS = "SubqueryAlias"
#: How the names of operators with state begin, a join of two streams aside.
_STATEFUL = ("Aggregate", "Deduplicate", "FlatMapGroups", "TransformWithState", "GlobalLimit")


# PySpark asks for these at each column and each frame. The JVM looks for the short names in all jars.
_ASKED = (
    "PythonUtils",
    "functions",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.functions",
)


def know_classes(spark: SparkSession) -> None:
    """Have PySpark keep the Java classes that it looks up again at every step; of Spark Connect it has none."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None or _ASKED[0] in vars(jvm):
        return
    from py4j.java_gateway import JavaClass
    from py4j.protocol import Py4JError

    for name in _ASKED:
        with suppress(Py4JError):
            found = getattr(jvm, name)
            if isinstance(found, JavaClass):
                setattr(jvm, name, found)


def observations(frame: DataFrame) -> list[str]:
    """The names of the topmost calls' frames that a frame was made of."""
    if is_connect(frame):
        return [part.name for kind, part in sent(frame, _is_observed_there) if _is_observed_there(kind, part)]
    return [node.name() for node in _above(frame) if _is_observed(node)]


def _is_observed_there(kind: str, part: Any) -> bool:
    """As `_is_observed`, of a plan that is sent to a server."""
    return bool(kind == _OBSERVED and names_of_metrics([part.name]))


def observed_now(spark: SparkSession, query: str, names: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """What was observed so far in the micro-batch that a running query is at, by those of the names that are known.

    An `Observation` would wait for ever where a sink reads rows in a way of its own.
    """
    streams: Any = spark._jsparkSession.streams()  # noqa: SLF001 - see above
    observed = streams.get(query).streamingQuery().lastExecution().observedMetrics()
    return {name: json.loads(observed.apply(name).json()) for name in names if observed.contains(name)}


def rows_read_now(spark: SparkSession, query: str) -> int | None:
    """How many rows the sources gave the micro-batch that a running query is at, which has ended but for its report.

    Spark counts those of a source as often as the plan reads it; here they are once. None where the plan that was
    carried out does not show each source.
    """
    stream: Any = spark._jsparkSession.streams().get(query).streamingQuery()  # noqa: SLF001 - see above
    last = stream.lastExecution()
    sources, given = (_items(plan.collectLeaves()) for plan in (stream.logicalPlan(), last.logical()))
    if len(sources) != len(given):
        return None
    # A source has the same columns wherever it is read.
    wanted = {
        _first_column(rows)
        for source, rows in zip(sources, given, strict=True)
        if source.isStreaming() and f"/{END}" not in source.toString()
    }
    found: dict[int | None, int] = {}
    for leaf in _items(last.executedPlan().collectLeaves()):
        link = leaf.logicalLink()
        column = _first_column(link.get()) if link.isDefined() else None
        count = leaf.metrics().get("numOutputRows")
        if column in wanted and count.isDefined():
            found[column] = max(found.get(column, 0), int(count.get().value()))
    return sum(found.values()) if found.keys() == wanted and None not in wanted else None


def topics_read(frame: DataFrame) -> list[dict[str, str]]:
    """The options with which a frame reads topics of Kafka as they come."""
    if is_connect(frame):
        reads = [part for kind, part in sent(frame) if kind == "Read" and part.is_streaming]
        return [dict(one.data_source.options) for one in reads if one.data_source.format == _KAFKA]
    leaves = [node for node in _items(_plan(frame).collectLeaves()) if node.nodeName() == _STREAM]
    return [dict(node.extraOptions().asCaseSensitiveMap()) for node in leaves if node.sourceName() == _KAFKA]


def folders_read(frame: DataFrame) -> list[str]:
    """The folders and files that a frame reads, as far as its plan names them; tables of files by their places."""
    if is_connect(frame):
        reads = [part for kind, part in sent(frame) if kind == "Read"]
        found = [path for one in reads for path in _places_there(one, frame.sparkSession)]
    else:
        found = [path for leaf in _items(_plan(frame).collectLeaves()) for path in _places(leaf, frame.sparkSession)]
    return list(dict.fromkeys(found))


def table_place(frame: DataFrame, sink: tuple[str, Mapping[str, Any]]) -> str | None:
    """The folder of the Delta table that a sink names in a catalog, if it is there."""
    kind, options = sink
    table = next((str(value) for name, value in options.items() if name.lower() == "table"), None)
    catalog: Any = frame.sparkSession.catalog
    if kind.lower() != "delta" or table is None or not catalog.tableExists(table):
        return None
    return next(iter(folders_read(frame.sparkSession.table(table))), None)


def _places_there(read: Any, spark: SparkSession) -> list[str]:
    """As `_places`, of a plan that is sent to a server, which is asked where a table of its catalog lies."""
    if read.HasField("data_source"):
        return [*read.data_source.paths, *_path_option(read.data_source.options)]
    if not read.HasField("named_table"):
        return []
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {read.named_table.unparsed_identifier}").collect()
    return [row["data_type"] for row in described if row["col_name"] == "Location"][-1:]  # columns come before


def _places(leaf: Any, spark: Any) -> list[str]:
    """What a leaf of a plan reads."""
    from py4j.java_gateway import is_instance_of

    kind = leaf.nodeName()
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        options = {str(pair._1()): str(pair._2()) for pair in _items(source.options().toSeq())}  # noqa: SLF001
        return [*_items(source.paths()), *_path_option(options)]
    if kind == "LogicalRelation" and is_instance_of(spark._sc._gateway, leaf.relation(), _FILES):  # noqa: SLF001
        return str(leaf.relation().location().rootPaths().mkString("\n")).split("\n")
    if kind == _STREAM:
        return _path_option(leaf.extraOptions().asCaseSensitiveMap())
    if kind == "DataSourceV2Relation":
        return _path_option(leaf.options().asCaseSensitiveMap())
    return []


def _path_option(options: Mapping[str, str]) -> list[str]:
    """The paths among the options of a reader; several are as Spark writes them for a table of files."""
    given = {name.lower(): value for name, value in options.items()}
    try:
        several = json.loads(given.get("paths", "[]"))
    except ValueError:  # an option of another reader
        several = []
    return [path for path in (given.get("path"), *several) if isinstance(path, str)]


def _first_column(plan: Any) -> int | None:
    columns = plan.output()
    return None if columns.isEmpty() else int(columns.head().exprId().id())


def aliases(frame: DataFrame, wanted: Callable[[str], bool]) -> list[str]:
    """The wanted names of frames that a frame was made of: the topmost on each way down its plan, each once."""
    if is_connect(frame):
        named = sent(frame, lambda kind, part: kind == _ALIAS and wanted(part.alias))
        names = [part.alias for kind, part in named if kind == _ALIAS and wanted(part.alias)]
    else:
        names = [str(node.alias()) for node in _down_to(frame, _is_alias(wanted)) if _is_alias(wanted)(node)]
    return list(dict.fromkeys(names))


def _is_alias(wanted: Callable[[str], bool]) -> Callable[[Any], bool]:
    return lambda node: bool(node.nodeName() == _ALIAS and wanted(str(node.alias())))


def watermark_millis(frame: DataFrame) -> int | None:
    """The greatest delay of a `withWatermark` on a frame, above any that was observed; None without one."""
    found = [_delay(node, frame) for node in _above(frame) if node.nodeName() == _WATERMARK]
    return max(found, default=None)


def watermark_columns(frame: DataFrame) -> list[str]:
    """The columns that a `withWatermark` on a frame is of, above any that was observed."""
    found = [str(node.eventTime().name()) for node in _above(frame) if node.nodeName() == _WATERMARK]
    return list(dict.fromkeys(found))


def may_be_watermarked(frame: DataFrame) -> bool | None:
    """Whether a frame of Spark Connect has a `withWatermark`, above what was observed; None: the server may know."""
    kinds = {kind for kind, _ in sent(frame, _is_observed_there)}
    return True if "WithWatermark" in kinds else (None if kinds & HIDDEN else False)


def refuse_connect(frame: DataFrame) -> None:
    """Raise `SessionError` for a frame of Spark Connect, whose plan cannot be put together anew."""
    if is_connect(frame):
        raise SessionError(
            "ap.start plans the calls before the last one anew, which Spark Connect has no way for. Use "
            "result.writeStream, or write the answers of these calls by a start of their own and read them as a stream."
        )


def grafted(frame: DataFrame, pieces: Mapping[str, DataFrame]) -> DataFrame:
    """The same frame over other observed frames, by the names of those that they take the place of."""
    if not pieces:
        return frame
    refuse_connect(frame)
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - see above
    catalyst = jvm.org.apache.spark.sql.catalyst

    def seq(values: list[Any]) -> Any:
        return _seq(jvm, values)

    def instead(node: Any, piece: Any) -> Any:
        """A plan with the columns of a node, by its own identifiers."""
        empty, none = seq([]), jvm.scala.Option.empty()
        columns = [
            catalyst.expressions.Alias(own, theirs.name(), theirs.exprId(), empty, none, empty)
            for own, theirs in zip(_items(piece.output()), _items(node.output()), strict=True)
        ]
        return catalyst.plans.logical.Project(seq(columns), piece)

    def piece_of(node: Any) -> Any:
        known = _is_observed(node) and node.name() in pieces
        return instead(node, _plan(pieces[node.name()])) if known else None

    return _rebuilt(frame, piece_of)


def without_watermarks(frame: DataFrame) -> DataFrame:
    """The same frame without the `withWatermark` of its user: Spark refuses a second one, and the call sets its own.

    Raises `BadArgument` where an operator of Spark with state lies above it, which cannot do without.
    """
    if not hasattr(frame, "_jdf"):
        return frame

    def below(node: Any) -> Any:
        name = node.nodeName()
        if _is_observed(node):
            return node
        if name == _WATERMARK:
            return _rebuilt_plan(frame.sparkSession._jvm, node.child(), below)  # noqa: SLF001
        if _keeps_state(node) and any(part.nodeName() == _WATERMARK for part in _walk(node, _is_observed)):
            raise BadArgument(
                f"A frame has a withWatermark below {name}, an operator of Spark with state, and Spark sets a "
                "watermark once. Leave withWatermark out and give lateness=, or write what that operator answers and "
                "read it as a stream."
            )
        return None

    return _rebuilt(frame, below)


def _keeps_state(node: Any) -> bool:
    name = str(node.nodeName())
    if name == "Join":
        return all(child.isStreaming() for child in _items(node.children()))
    return name.startswith(_STATEFUL) and bool(node.isStreaming())


def _rebuilt(frame: DataFrame, other: Callable[[Any], Any]) -> DataFrame:
    """The frame of another plan: of each node what ``other`` puts in its place, if not None."""
    spark, plan = frame.sparkSession, _plan(frame)
    jvm: Any = spark._jvm  # noqa: SLF001 - see above
    made = _rebuilt_plan(jvm, plan, other)
    if made is plan:
        return frame
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, made), spark)  # noqa: SLF001


def _rebuilt_plan(jvm: Any, node: Any, other: Callable[[Any], Any]) -> Any:
    if (place := other(node)) is not None:
        return place
    children = _items(node.children())
    made = [_rebuilt_plan(jvm, child, other) for child in children]
    return node if all(map(is_, made, children)) else node.withNewChildren(_seq(jvm, made))


def _seq(jvm: Any, values: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)


def _above(frame: DataFrame) -> Iterator[Any]:
    """The nodes of a frame's plan down to the observed ones."""
    return _down_to(frame, _is_observed)


def _is_observed(node: Any) -> bool:
    """Whether a call of ours observes here; what users observe is no end of a plan."""
    return bool(node.nodeName() == _OBSERVED and names_of_metrics([node.name()]))


def _down_to(frame: DataFrame, last: Callable[[Any], bool]) -> Iterator[Any]:
    """The nodes of a frame's plan from the top down to the last on each way."""
    if hasattr(frame, "_jdf"):
        yield from _walk(_plan(frame), last)


def _walk(plan: Any, last: Callable[[Any], bool]) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        if not last(node):
            waiting += _items(node.children())


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001


def _items(values: Any) -> list[Any]:
    return [values.apply(i) for i in range(values.size())]


def _delay(watermark: Any, frame: DataFrame) -> int:
    """The delay of a watermark in milliseconds."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    return int(jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs(watermark.delay()))
