"""Operators of one stream that may feed a join: filters and fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from appulse.api.results import SPARK, Described, Framed, is_spark
from appulse.arguments import TEXT, Names, Probability, checked, function, one_of
from appulse.engines.imputing import OneImputer
from appulse.imputation.dependencies import DifferentialDependency
from appulse.model.stream import Result, Stream

_Spark: TypeAlias = Annotated[Any, SPARK]
_Format: TypeAlias = Annotated[str, one_of("json", "avro")]


@checked
def filter(stream: Described[Result], condition: str) -> Stream[Result]:  # noqa: A001 - the contract's name, used as ap.filter
    """The stream with only the rows, and samples of rows, that satisfy a condition; evaluated lazily.

    Arguments:
    * ``stream``: with or without a frame.
    * ``condition``: an SQL boolean expression over the stream's columns and the dimensions of its value: comparisons,
      ``BETWEEN``, ``IN (...)``, ``IS [NOT] NULL``, ``AND``, ``OR``, ``NOT`` and arithmetic, such as ``"load > 20 AND
      room IN ('a', 'b')"``. Rows for which it is unknown (null) are left out.

    Returns a `Stream`. An uncertain row keeps the samples that satisfy the condition, so its existence decreases; a row
    without any is left out, and is not a reject. A `Gaussian` or `Ball` whose dimensions the condition names is
    represented by points from then on.

    Raises `BadArgument` with the position of an error in the condition.

    Dallachiesa et al. 2015, section 3.2.

    >>> rows = pa.table({"id": [1, 2], "t": [0, 0], "x": [0.0, 0.5], "load": [10, 30]})
    >>> stream = ap.filter(ap.Stream(rows, key="id", time="t", value="x"), "load > 20")
    >>> ap.ask(stream, pa.table({"query": [1], "condition": ["x >= 0"]}))["key"].to_pylist()
    [2]
    """
    from appulse.queries.condition import parse

    parse(condition)
    return replace(stream, where=(*stream.where, condition))


@checked
def impute(stream: Framed[Result], imputer: OneImputer, *, empty_rows: bool = False) -> Stream[Result]:
    """Fill the missing attributes of a stream with an imputer; the result is a stream of samples.

    Arguments:
    * ``stream``: has the value ``Incomplete(...)``.
    * ``imputer``: an imputer, or ``"auto"``, which chooses (`AutoImputer`).
    * ``empty_rows``: also fills rows that lack every attribute, from neighbouring rows or the repository, if the
      imputer can.

    Returns a stream whose frame has three more columns: ``imputed`` (the samples), ``imputed_weights`` and ``filled``,
    a list of (attribute, rule). Rows that lack every attribute, have an infinite one, or cannot be filled have null
    there, and are rejects of the next call, with the reason. Rows without key, time or partition fill no others. A
    Spark frame stays one.

    Raises `BadArgument` for a stream without `Incomplete`, or an imputer that cannot fill it.

    Ren et al. 2019, Definition 2.4.

    >>> known = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [10.0, 20.0, 30.0, 40.0]})
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> filled = ap.impute(stream, ap.NearestImputer(known, k=2)).frame
    >>> filled["imputed"][0].as_py()
    [[2.1, 20.0], [2.1, 30.0]]
    >>> [round(weight, 2) for weight in filled["imputed_weights"][0].as_py()]
    [0.9, 0.1]
    """
    from appulse.engines import imputing
    from appulse.engines.filling import filled_around, is_around
    from appulse.engines.surviving import survivor

    model = imputing.incomplete_model(stream)
    if is_spark(stream.frame):
        from appulse.engines.spark.imputing import filled_frame

        frame, staged = filled_frame(stream, imputer, empty_rows=empty_rows)
        return imputing.filled_stream(survivor(stream) if staged else stream, frame)
    from appulse.engines.given import table_of

    table = table_of(stream)
    fill = imputing.bound(imputing.chosen_for(imputer, stream, table, empty_rows=empty_rows), model)
    if is_around(fill):
        return imputing.filled_stream(survivor(stream), filled_around(table, stream, fill, empty_rows=empty_rows))
    return imputing.filled_stream(stream, imputing.filled_table(table, stream, fill, empty_rows=empty_rows))


@checked
def decode_messages(
    frame: _Spark,
    schema: Annotated[str, TEXT],
    format: _Format = "json",  # noqa: A002 - as Spark has it
) -> Any:
    """Decode Kafka messages into columns by a schema; messages that cannot be decoded become rejects of the next call.

    Arguments:
    * ``frame``: is read by ``spark.readStream.format("kafka")``, or by ``spark.read``; or is one of `mqtt_stream`.
    * ``schema``: Spark's, such as ``"id STRING, ts TIMESTAMP, x DOUBLE"``, or of ``format="avro"`` the JSON of an Avro
      schema.
    * ``format``: ``"json"``, or ``"avro"``, which needs Spark's package spark-avro.

    Returns a Spark frame (streaming if ``frame`` is) with the columns of the schema, and ``_undecoded``: null, or of a
    message that is not as the schema says, or empty, its ``topic``, ``partition``, ``offset`` and ``payload`` (text, or
    with ``base64`` bytes). A `Stream` of the frame makes rejects of these: ``cannot be decoded``, the message among
    their ``values``. A frame that decodes in its own way may have such a column, too.

    Raises `BadArgument` for a frame without the columns of messages or a schema that cannot be read, and `SessionError`
    where Spark lacks the package.

    >>> messages = spark.readStream.format("kafka").options(**settings).load()  # doctest: +SKIP
    >>> frame = ap.decode_messages(messages, "id STRING, ts TIMESTAMP, x DOUBLE")  # doctest: +SKIP
    >>> vans = ap.Stream(frame, key="id", time="ts", value=ap.Gaussian("x", sigma=1))  # doctest: +SKIP
    """
    from appulse.engines.spark.messages import decoded

    return decoded(frame, schema, format)


@checked
def discover_dependencies(
    repository: Any,
    columns: Names | None = None,
    confidence: Probability = 0.95,
    progress: Annotated[Callable[[str], None], function("a text")] | None = None,
    *,
    conditional: bool = False,
) -> list[DifferentialDependency]:
    """Find rules by which columns of a table determine others, for a `DependencyImputer`.

    Of each attribute the determinants are those by which rows held out are filled best; they come together in several
    widths, and each alone.

    Arguments:
    * ``repository``: any frame of complete rows.
    * ``columns``: those to look at; by default all numbers.
    * ``confidence``: the share of its close pairs of rows on which a rule holds at least.
    * ``conditional``: adds rules with ``where=``: ranges of an attribute, from one eighth of its values to another, in
      which at most half the tolerance holds; at most ten rules a column in all.
    * ``progress``: is called with the rules of each column as they are found.

    Returns a list of `DifferentialDependency`, each with at least eight ordered pairs of close rows. Raises
    `BadArgument` for a table without two columns of numbers.

    Song & Chen 2011; Ren et al. 2019, section 6.1.

    >>> table = pa.table({"x": [i / 10 for i in range(200)], "y": [i / 5 for i in range(200)]})
    >>> rules = ap.discover_dependencies(table, confidence=0.9)
    >>> sorted({rule.dependent for rule in rules})
    ['x', 'y']
    """
    from appulse.imputation.discovery import discovered

    return [found.rule for found in discovered(repository, columns, confidence, progress, conditional=conditional)]
