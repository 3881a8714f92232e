"""What calls of the front door share: their arguments by name, and one way to Spark or to this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow.compute as pc

from appulse.api.by_hand import refuse_twice
from appulse.api.results import is_spark, remember
from appulse.engines.options import options_of
from appulse.errors import BadArgument, warn_rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.local import Local
    from appulse.model.stream import Result, Stream

# Arguments that are the streams of a call, and what else a method knows.
_NO_SETTINGS = {"left", "right", "more", "stream", "streams", "reference", "readings", "fences", "self", "__class__"}


def settings_of(call: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call beside its streams, its options checked; ``arguments`` are all of them, by name."""
    settings = {name: value for name, value in arguments.items() if name not in _NO_SETTINGS}
    return settings | {"options": options_of(settings["options"], call)}


def answers_of(
    streams: Sequence[Stream[Result]], in_process: Callable[[list[pa.Table]], Local[Any]], on_spark: Callable[[], Any]
) -> Result:
    """The answers of a call: those that ``on_spark`` gives, if frames are Spark's, else those of an engine.

    ``in_process`` makes the engine from the tables of the streams.
    """
    refuse_twice(streams)
    spark = [is_spark(stream.frame) for stream in streams]
    if all(spark):
        return cast("Result", on_spark())
    if any(spark):
        raise BadArgument(
            "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
        )
    from appulse.engines.compiling import announce_compiling
    from appulse.engines.given import table_of

    announce_compiling()
    tables = [table_of(stream) for stream in streams]
    engine = in_process(tables)
    names = [encoding.name for encoding in engine.call.encodings]
    given = dict(zip(names, tables, strict=True))
    result, rejects = engine.answers(given), engine.rejects()
    for name, table in given.items():
        if len(rejects) >= len(table) > 0:
            own = rejects.filter(pc.equal(rejects["stream"], name))
            if len(own) == len(table):
                warn_rejected(name, own)
    return cast("Result", remember(result, rejects, engine.observed()))
