"""Operators of one stream: filters, fills and aggregates, which may feed a join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from appulse.api.results import Described, Framed, is_spark, remember
from appulse.arguments import Names, OnReject, Probability, checked, function
from appulse.engines.aggregate import Aggregates
from appulse.engines.imputing import OneImputer
from appulse.engines.options import Options, options_of
from appulse.imputation.dependencies import DifferentialDependency
from appulse.model.stream import Stream
from appulse.windows.definitions import GivenWindow


@checked
def filter(stream: Described, condition: str) -> Stream:  # noqa: A001 - the contract's name, used as ap.filter
    """The stream with those rows, and samples of rows, that satisfy a condition; nothing is computed yet.

    ``condition`` is a SQL boolean expression over the stream's columns and the dimensions of its value: comparisons,
    ``BETWEEN``, ``IN (...)``, ``IS [NOT] NULL``, ``AND``, ``OR``, ``NOT`` and arithmetic, such as ``"load > 20 AND room
    IN ('a', 'b')"``. It holds where it is true, not where it is unknown. An uncertain row keeps the samples that
    satisfy it, so its existence shrinks; a row left without any goes, and is no reject. A Gaussian or a ball whose
    dimensions a condition names is its deterministic points from then on. Raises `BadArgument` with the position of
    what cannot be read.

    Dallachiesa et al. 2015, section 3.2.
    """
    from appulse.queries.condition import parse

    parse(condition)
    return replace(stream, where=(*stream.where, condition))


@checked
def impute(stream: Framed, imputer: OneImputer) -> Stream:
    """The stream with what is missing in its rows filled by an imputer: a stream of samples.

    ``stream`` has the value ``Incomplete(...)``. Its frame gets the columns ``imputed`` (the samples),
    ``imputed_weights`` and ``filled``, a list of (attribute, rule): what was filled, and by what. Rows that lack every
    attribute, or hold an infinite one, have null there, and are rejects of what comes next. A Spark frame stays one.

    Ren et al. 2019, Definition 2.4.
    """
    from appulse.engines import imputing

    model = imputing.incomplete_model(stream)
    if is_spark(stream.frame):
        from appulse.engines.spark.imputing import filled_frame

        return imputing.filled_stream(stream, filled_frame(stream, imputing.bound(imputer, model)))
    from appulse.engines.local import as_table

    table = as_table(stream.frame)
    fill = imputing.bound(imputing.chosen_for(imputer, stream, table), model)
    return imputing.filled_stream(stream, imputing.filled_table(table, stream, fill))


@checked
def discover_dependencies(
    repository: Any,
    columns: Names | None = None,
    confidence: Probability = 0.95,
    progress: Annotated[Callable[[str], None], function("a text")] | None = None,
    *,
    conditional: bool = False,
) -> list[DifferentialDependency]:
    """Rules by which the columns of a table tell each other, for a `DependencyImputer` over it.

    ``repository`` is any frame of complete rows, ``columns`` those to look at (default: all numbers). Every rule holds
    on at least the share ``confidence`` of its close pairs of rows. Of each attribute the determinants are those by
    which rows held out are filled best; they come together in several widths, and each alone. ``conditional`` adds
    rules with ``where=``: ranges of an attribute, from one eighth of its values to another, in which at most half the
    tolerance holds; at most ten rules a column in all. ``progress`` is told of the rules of each column as they are
    found.

    Song & Chen 2011; Ren et al. 2019, section 6.1.
    """
    from appulse.imputation.discovery import discovered

    return [found.rule for found in discovered(repository, columns, confidence, progress, conditional=conditional)]


@checked
def window_aggregate(
    stream: Framed,
    aggregates: Aggregates,
    *,
    window: GivenWindow,
    distribution: bool = False,
    single_valued: bool = False,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Any:
    """Aggregates of a stream's values over its window, at every tick, over all possible worlds.

    ``aggregates`` maps dimensions of the value, by name, to one or several of ``"sum"``, ``"mean"``, ``"count"``,
    ``"min"`` and ``"max"``: ``{"load": ["sum", "max"]}``. In each world a count window, uncertain or not, holds the
    newest ``size`` existing rows of those it keeps, another window its existing rows.

    Columns: those of ``partition_by``, ``time``, and of each aggregate its mean over the worlds,
    ``<column>_<aggregate>``, and its standard deviation, ``..._std``. A mean, least or greatest value is over the
    worlds where a row exists, and ``..._exists`` is their probability. ``distribution=True`` adds
    ``..._distribution``, a list of (value, probability), exact up to 4096 values; beyond that neighbours are put
    together, and ``..._distribution_error`` is the root mean square of what values were moved by (0: exact). There is a
    row per tick and group, under a `TumblingWindow` one per block, at its end. ``single_valued=True`` gives the sum
    over the window's rows of their mean values, as if all of them existed. Bad rows are in `rejects`, or raise
    `BadInput` with ``on_reject="fail"``. Spark frames give a Spark frame (streaming if they are), others a
    `pyarrow.Table`. ``options`` are for the size of the output, and partitions: see `Options`.

    Dallachiesa et al. 2015, sections 3.3 and 7.3.
    """
    settings: dict[str, Any] = {
        "window": window,
        "distribution": distribution,
        "single_valued": single_valued,
        "on_reject": on_reject,
        "options": options_of(options, "window_aggregate"),
    }
    if is_spark(stream.frame):
        from appulse.engines.spark.aggregate import spark_aggregate

        return spark_aggregate(stream, aggregates, **settings)
    from appulse.engines.aggregate import resolve_aggregate, run_local
    from appulse.engines.local import as_table

    table = as_table(stream.frame)
    call = resolve_aggregate(stream, table, aggregates, **settings)
    result, rejected = run_local(call, table)
    remember(result, rejected, call)
    return result
