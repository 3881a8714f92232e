"""The frames of a call: what Spark says of them before any row is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import DataFrame

from appulse.engines.base import Call
from appulse.engines.spark.given import checked_frame, schema_of
from appulse.engines.spark.inputs import read
from appulse.engines.spark.plans import (
    grafted,
    know_classes,
    may_be_watermarked,
    observations,
    watermark_columns,
    watermark_millis,
    without_watermarks,
)
from appulse.engines.spark.results import SparkResult, observed_result
from appulse.engines.spark.routing import plain_tiling
from appulse.engines.spark.settings import check_session
from appulse.engines.spark.tagged import arrow_schema
from appulse.errors import BadArgument
from appulse.model.streaming import is_connect, is_streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

    from appulse.engines.options import Options
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.stream import Stream

C = TypeVar("C", bound=Call[Any])


@dataclass(frozen=True)
class Sources:
    """The frames of a call: all of them are ``streaming``, or none is."""

    frames: tuple[DataFrame, ...]
    schemas: tuple[T.StructType, ...]  # their columns
    streaming: bool
    upstream: tuple[tuple[SparkResult, ...], ...] = ()  # the streaming calls whose answers each frame is made of
    waits: tuple[bool, ...] = ()  # whether each has a lateness of its own
    stateless: tuple[SparkResult, ...] = ()  # further calls whose answers come in, without state

    @staticmethod
    def of(streams: Sequence[Stream]) -> Sources:
        """The frames of streams, checked; `BadArgument` where they are of several kinds."""
        frames: list[Any] = [stream.frame for stream in streams]
        if not all(isinstance(frame, DataFrame) for frame in frames):
            raise BadArgument(
                "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
            )
        streaming = {is_streaming(frame) for frame in frames}
        if len(streaming) > 1:
            raise BadArgument(
                "The call mixes streaming and batch frames, which Spark cannot union. Read the batch side as a stream "
                "(spark.readStream), or collect it and use it in a batch call."
            )
        know_classes(frames[0].sparkSession)
        found = Sources(
            tuple(map(checked_frame, streams)),
            tuple(map(schema_of, streams)),
            streaming.pop(),
            tuple(map(upstream_of, frames)),
            tuple(stream.lateness is not None for stream in streams),
            tuple(result for frame in frames for result in _observed_in(frame) if not result.chains),
        )
        if not found.streaming:
            return found
        check_session(found.spark)
        return replace(found, frames=tuple(map(without_watermarks, frames)))

    @property
    def spark(self) -> Any:
        """Their session."""
        return self.frames[0].sparkSession

    @property
    def arrow(self) -> list[pa.Schema]:
        """Their columns as Arrow has them."""
        return [*map(arrow_schema, self.schemas)]

    def read(self, stream: int, columns: Sequence[str], *, dated: bool = False) -> DataFrame:
        """What a call reads of a frame; see `inputs.read`."""
        return read(self.frames[stream], self.schemas[stream], columns, dated=dated)

    @property
    def slots(self) -> int:
        """Tasks of a stateful operator; 0 in a batch query."""
        return shuffle_partitions(self.spark) if self.streaming else 0

    @property
    def results(self) -> list[SparkResult]:
        """The streaming calls whose answers come in, each once."""
        return list({result.name: result for results in self.upstream for result in results}.values())

    def chained(self, call: C) -> C:
        """The call, which knows now whether its rows are answers of other calls in the same query."""
        given = [bool(results) for results in self.upstream]
        if not any(given):
            return call
        if any(idle is not None and own for idle, own in zip(call.idle_after, given, strict=True)):
            raise BadArgument(
                "idle_after= is for the streams of the first call: what it answers falls silent when they do. Leave it "
                "out."
            )
        if any(result.changes for result in self.results):
            raise BadArgument(
                "The input is made of answers that come and go (emit='changes', column 'change'), which no call with "
                "state can follow in the same streaming query. Leave out emit='changes', or write them to files and "
                "read those."
            )
        return replace(call, chained=True)

    def lag(self, call: Call[Any]) -> int:
        """How far (microseconds) Spark's watermark is ahead of the answers of other calls that come in."""
        lags = [0]
        given = zip(self.upstream, self.waits, call.lateness, call.encodings, strict=True)
        for results, waits, lateness, encoding in given:
            for result in results:
                own = result.lag
                if own is None and not waits and call.stateful:  # without state nothing waits, and nothing is late
                    raise BadArgument(
                        f"Stream {encoding.name!r} is made of the answers of a call in the same query, and these may "
                        "be of any age. Give lateness=, how far behind the newest row their times may be; later ones "
                        "are rejects. An encounter and a visit come when they have ended, with the time of their "
                        "start; where windows go by rows, and in choices of queries, rows may be old."
                    )
                lags.append(max(own or 0, result.stage_lag + lateness))
        return max(lags)

    def grafted(self, pieces: Mapping[str, DataFrame]) -> Sources:
        """The same frames over other plans of the calls before."""
        return replace(self, frames=tuple(grafted(frame, pieces) for frame in self.frames))

    def partitions(self, options: Options) -> int:
        """The number of tiles or buckets: as asked for, or else as many as there are cores."""
        return options.partitions or default_partitions(self.spark, streaming=self.streaming)

    def buckets(self, options: Options) -> Tiling:
        """Buckets that have no place in space."""
        return plain_tiling(self.partitions(options), self.slots)


def upstream_of(frame: DataFrame) -> tuple[SparkResult, ...]:
    """The streaming calls whose answers a frame is made of."""
    return tuple(result for result in _observed_in(frame) if result.chains)


def _observed_in(frame: DataFrame) -> list[SparkResult]:
    if not is_streaming(frame):
        return []
    found = [observed_result(name) for name in observations(frame)]
    return [result for result in found if result is not None]


def default_partitions(spark: Any, *, streaming: bool) -> int:
    """As many as there are cores, and no more than a stream's tasks."""
    cores = int(spark.sparkContext.defaultParallelism) if hasattr(spark, "_jsc") else shuffle_partitions(spark)
    return min(cores, shuffle_partitions(spark)) if streaming else cores


def shuffle_partitions(spark: Any) -> int:
    """Tasks of a stateful operator."""
    return int(spark.conf.get("spark.sql.shuffle.partitions"))


def resolved(
    streams: Sequence[Stream], resolve: Callable[[Sequence[Stream], Sequence[pa.Schema]], C]
) -> tuple[Sources, list[Stream], C]:
    """The frames of streams, the streams as Spark's watermark delays them, and the call that ``resolve`` makes."""
    sources = Sources.of(streams)
    delayed = [with_watermark_delay(stream) for stream in streams]
    return sources, delayed, sources.chained(resolve(delayed, sources.arrow))


def with_watermark_delay(stream: Stream) -> Stream:
    """The stream with the delay of a `withWatermark` on its frame as its lateness."""
    own = repr(stream.name or stream.key)
    delay = watermark_delay(stream.frame, f"Stream {own}", stream.lateness)
    if delay is None:
        return stream
    if stream.lateness is not None:
        columns = " and ".join(map(repr, watermark_columns(stream.frame)))
        raise BadArgument(
            f"Stream {own} has lateness={stream.lateness!r} and a withWatermark on its frame, of {columns}. Give one "
            "of them."
        )
    return replace(stream, lateness=delay)


def watermark_delay(frame: DataFrame, what: str, lateness: Any) -> float | None:
    """The delay, in seconds, of a `withWatermark` on a frame; None without one, or where the frame is no stream.

    Raises `BadArgument` where it cannot be read and no ``lateness`` is given in its place.
    """
    if not is_streaming(frame):
        return None
    if is_connect(frame):
        there = may_be_watermarked(frame)
        if there or (there is None and lateness is None):
            raise BadArgument(
                f"{what} has a frame of Spark Connect, where the delay of a withWatermark cannot be read. Leave it out "
                "and give lateness=, 0 for none."
            )
        return None
    delay = watermark_millis(frame)
    if delay is not None and upstream_of(frame):
        raise BadArgument(
            f"{what} is made of the answers of another call and has a withWatermark. Spark sets a watermark once, and "
            "the first call has set it. Leave it out; lateness= says how far behind their order its rows may come."
        )
    return None if delay is None else delay / 1000.0
