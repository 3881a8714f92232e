"""Calls that keep no rows to withdraw: they are made over the rows that are left once their ticks are complete."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from appulse.api.calls import answers_of
from appulse.api.results import is_spark, kept, remember
from appulse.engines.filling import local_stage, refuse_endless
from appulse.engines.options import CallSettings
from appulse.engines.surviving import bucket_of, resolve_surviving, survivor
from appulse.model.defects import concat_rejects
from appulse.model.stream import stream_names
from appulse.model.streaming import is_streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.filling import Around
    from appulse.engines.local import Local
    from appulse.model.stream import Result, Stream


def answers_over_survivors(
    streams: Sequence[Stream[Result]],
    alone: str,
    settings: Mapping[str, Any],
    in_process: Callable[[Sequence[Stream], Sequence[pa.Schema], Mapping[str, Any]], Local[Any]],
    on_spark: Callable[[Sequence[Stream]], Any],
    *,
    asked: bool = True,
) -> Result:
    """`answers_of` a call, as `over_survivors` has it."""

    def call(left: Sequence[Stream[Result]]) -> Result:
        def engine(tables: Sequence[pa.Table]) -> Local[Any]:
            return in_process(left, [table.schema for table in tables], settings)

        return answers_of(left, engine, partial(on_spark, left))

    return over_survivors(streams, alone, settings, call, asked=asked)


def over_survivors(
    streams: Sequence[Stream[Result]],
    alone: str,
    settings: Mapping[str, Any],
    call: Callable[[Sequence[Stream[Result]]], Result],
    *,
    asked: bool = True,
    signed: bool = False,
    fills: Mapping[str, Around] | None = None,
) -> Result:
    """The answers of a call over the rows that are not withdrawn; ``alone`` is the name of a single stream.

    Unless that is ``asked`` the call itself withdraws rows. Rows may be ``signed``, as in `SurvivingCall`. ``fills``
    fill streams by the rows around, by name, before the call has them.
    """
    fills = fills or {}
    if not fills and (not asked or all(stream.change is None for stream in streams)):
        return call(streams)
    names = stream_names(streams) if len(streams) > 1 else (streams[0].name or alone,)
    given = [replace(stream, name=name) for stream, name in zip(streams, names, strict=True)]
    own = CallSettings(on_reject=settings["on_reject"], options=settings["options"])
    staged = {stream.name for stream in given if stream.name in fills or (asked and stream.change is not None)}
    if any(is_spark(stream.frame) for stream in streams):
        return cast("Result", _on_spark(given, own, call, fills, staged, signed=signed))
    from appulse.engines.given import table_of

    left, refused = [], []
    for stream in given:
        if stream.name in staged:
            table, fill = table_of(stream), fills.get(str(stream.name))
            engine = local_stage(stream, table.schema, own, fill, signed=signed)
            frame = engine.answers({str(stream.name): table})
            refused.append(engine.rejects())
            left.append(survivor(stream, frame, signed=signed, filled=fill is not None))
        else:
            left.append(stream)
    found = cast("pa.Table", call(left))
    behind = kept(found)
    rejects = concat_rejects([*refused, behind.rejected], behind.rejected.schema)
    return cast("Result", remember(found, rejects, behind.call))


def _on_spark(
    given: Sequence[Stream],
    settings: CallSettings,
    call: Callable[[Sequence[Stream]], Any],
    fills: Mapping[str, Around],
    staged: Collection[str | None],
    *,
    signed: bool,
) -> Any:
    from appulse.engines.spark.grouped import spark_grouped
    from appulse.engines.spark.imputing import filled_around_frame
    from appulse.engines.spark.results import remember as remember_frame
    from appulse.engines.spark.results import result_of
    from appulse.engines.spark.tagged import rejects_like

    left, before = [], []
    for stream in given:
        frame = stream.frame
        if stream.name not in staged:
            left.append(stream)
            continue
        fill = fills.get(str(stream.name))
        chained = is_streaming(frame)
        if fill is not None:
            if chained:
                refuse_endless(stream.name, fill.wait)
            frame = filled_around_frame(stream, fill, settings)
        else:
            frame = spark_grouped(
                [stream],
                lambda streams, schemas: resolve_surviving(streams[0], schemas[0], settings, signed=signed),
                bucket_of,
                "surviving",
                settings.options,
                by_key=True,
                whole=True,
            )
        before.append(result_of(frame))
        left.append(survivor(stream, frame, chained=chained, signed=signed, filled=fill is not None))
    found = call(left)
    behind = result_of(found)
    if behind.bad_rows is None:  # a streaming query writes the rejects of all its calls
        return found
    rejects = behind.bad_rows
    for result in before:
        if result.bad_rows is not None:
            rejects = rejects.unionByName(rejects_like(result.bad_rows, result.rejects, behind.rejects))
    return remember_frame(replace(behind, bad_rows=rejects))
