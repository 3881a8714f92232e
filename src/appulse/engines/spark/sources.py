"""The frames of a call: what Spark says of them before any row is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from appulse.engines.spark.routing import plain_tiling
from appulse.engines.spark.session import check_session
from appulse.errors import BadArgument, NotBuilt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.engines.options import Options
    from appulse.engines.spark.tiling import Tiling
    from appulse.model.stream import Stream


@dataclass(frozen=True)
class Sources:
    """The frames of a call: all of them are streams, or none is."""

    frames: tuple[DataFrame, ...]

    @staticmethod
    def of(frames: Sequence[Any]) -> Sources:
        """The frames, checked; `BadArgument` where they are of several kinds."""
        if not all(isinstance(frame, DataFrame) for frame in frames):
            raise BadArgument(
                "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
            )
        found = Sources(tuple(frames))
        if found.streaming and not all(frame.isStreaming for frame in frames):
            raise BadArgument(
                "The call mixes streaming and batch frames, which Spark cannot union. Read the batch side as a stream "
                "(spark.readStream), or collect it and use it in a batch call."
            )
        if found.streaming:
            check_session(found.spark)
        return found

    @property
    def streaming(self) -> bool:
        """Whether the frames are streams."""
        return any(frame.isStreaming for frame in self.frames)

    @property
    def spark(self) -> Any:
        """Their session."""
        return self.frames[0].sparkSession

    @property
    def slots(self) -> int:
        """Tasks of a stateful operator; 0 in a batch query."""
        return shuffle_partitions(self.spark) if self.streaming else 0

    def partitions(self, options: Options) -> int:
        """The number of tiles or buckets: as asked for, or else as many as there are cores."""
        return options.partitions or default_partitions(self.spark, streaming=self.streaming)

    def buckets(self, options: Options) -> Tiling:
        """Buckets that have no place in space."""
        return plain_tiling(self.partitions(options), self.slots)


def default_partitions(spark: Any, *, streaming: bool) -> int:
    """As many as there are cores, and no more than a stream's tasks."""
    cores = int(spark.sparkContext.defaultParallelism) if hasattr(spark, "_jsc") else shuffle_partitions(spark)
    return min(cores, shuffle_partitions(spark)) if streaming else cores


def shuffle_partitions(spark: Any) -> int:
    """Tasks of a stateful operator."""
    return int(spark.conf.get("spark.sql.shuffle.partitions"))


def with_watermark_delay(stream: Stream) -> Stream:
    """The stream with the delay of a `withWatermark` on its frame as its lateness.

    Spark lets a query set a watermark once, so a stream that another call of this kind puts out is refused.
    """
    own = repr(stream.name or stream.key)
    delay = watermark_delay(stream.frame, f"Stream {own}")
    if delay is None:
        return stream
    if stream.lateness is not None:
        raise BadArgument(
            f"Stream {own} has lateness={stream.lateness!r} and a withWatermark on its frame. Give one of them."
        )
    return replace(stream, lateness=delay)


def watermark_delay(frame: DataFrame, what: str) -> float | None:
    """The delay, in seconds, of a `withWatermark` on a frame; None without one."""
    nodes = list(_plan_of(frame))
    if any(node.nodeName().startswith("TransformWithState") for node in nodes):
        raise NotBuilt(
            f"{what} is what another streaming call puts out, and Spark lets no query set a watermark twice. "
            "Write that result to files by ap.start, and read them as a stream in a second query; or use batch frames."
        )
    delays = [_delay_of(node, frame) for node in nodes if node.nodeName() == "EventTimeWatermark"]
    return max(delays) / 1000.0 if delays else None


def _plan_of(frame: DataFrame) -> Iterator[Any]:
    """The nodes of a frame's plan; none where Spark does not let us look (Connect)."""
    if not hasattr(frame, "_jdf"):
        return
    waiting = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001 - there is no public way
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]


def _delay_of(watermark: Any, frame: DataFrame) -> int:
    """The delay of a watermark in milliseconds."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - there is no public way
    return int(jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs(watermark.delay()))
