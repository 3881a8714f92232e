"""Spark's own plan of a frame: found out what it rests on, and put together anew.

There is no public door to a logical plan, so this is where the private ones are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

_OBSERVED = "CollectMetrics"


def observations(frame: DataFrame) -> list[str]:
    """The names of the topmost observed frames that a frame was made of; none where Spark hides its plan (Connect)."""
    return [node.name() for node in _above(frame) if node.nodeName() == _OBSERVED]


def observed_now(spark: SparkSession, query: str) -> dict[str, dict[str, float | None]]:
    """What was observed so far in the micro-batch that a running query is at, by name.

    An `Observation` would wait for ever where a sink reads rows in a way of its own.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - see above
    streams: Any = spark._jsparkSession.streams()  # noqa: SLF001
    observed = streams.get(query).streamingQuery().lastExecution().observedMetrics()
    by_name = jvm.scala.jdk.javaapi.CollectionConverters.asJava(observed)
    return {str(name): json.loads(row.json()) for name, row in by_name.items()}


def aliases(frame: DataFrame, wanted: Callable[[str], bool]) -> list[str]:
    """The wanted names of frames that a frame was made of: the topmost on each way down its plan, each once."""
    names = [str(node.alias()) for node in _down_to(frame, _is_alias(wanted)) if _is_alias(wanted)(node)]
    return list(dict.fromkeys(names))


def _is_alias(wanted: Callable[[str], bool]) -> Callable[[Any], bool]:
    return lambda node: bool(node.nodeName() == "SubqueryAlias" and wanted(str(node.alias())))


def watermark_millis(frame: DataFrame) -> int | None:
    """The greatest delay of a `withWatermark` on a frame, above any that was observed; None without one."""
    found = [_delay(node, frame) for node in _above(frame) if node.nodeName() == "EventTimeWatermark"]
    return max(found, default=None)


def grafted(frame: DataFrame, pieces: Mapping[str, DataFrame]) -> DataFrame:
    """The same frame over other observed frames, by the names of those that they take the place of."""
    if not pieces:
        return frame
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - see above
    catalyst = jvm.org.apache.spark.sql.catalyst

    def seq(values: list[Any]) -> Any:
        return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)

    def instead(node: Any, piece: Any) -> Any:
        """A plan with the columns of a node, by its own identifiers."""
        empty, none = seq([]), jvm.scala.Option.empty()
        columns = [
            catalyst.expressions.Alias(own, theirs.name(), theirs.exprId(), empty, none, empty)
            for own, theirs in zip(_items(piece.output()), _items(node.output()), strict=True)
        ]
        return catalyst.plans.logical.Project(seq(columns), piece)

    def rebuilt(node: Any) -> Any:
        if node.nodeName() == _OBSERVED and node.name() in pieces:
            return instead(node, _plan(pieces[node.name()]))
        children = _items(node.children())
        others = [rebuilt(child) for child in children]
        if all(other is child for other, child in zip(others, children, strict=True)):
            return node
        return node.withNewChildren(seq(others))

    session = frame.sparkSession._jsparkSession  # noqa: SLF001
    return DataFrame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, rebuilt(_plan(frame))), frame.sparkSession
    )


def _above(frame: DataFrame) -> Iterator[Any]:
    """The nodes of a frame's plan down to the observed ones."""
    return _down_to(frame, lambda node: bool(node.nodeName() == _OBSERVED))


def _down_to(frame: DataFrame, last: Callable[[Any], bool]) -> Iterator[Any]:
    """The nodes of a frame's plan from the top down to the last on each way."""
    if not hasattr(frame, "_jdf"):
        return
    waiting = [_plan(frame)]
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
