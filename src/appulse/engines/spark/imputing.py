"""Imputers on Spark: each comes to the workers once, and a frame is filled row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4
from weakref import WeakKeyDictionary

from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812 - the house name of this module

from appulse.engines.filling import FillingBucket, is_around, resolve_filling
from appulse.engines.imputing import (
    FILLED_BY,
    SAMPLES,
    WEIGHTS,
    bound,
    check_filled,
    chosen_by_sample,
    filled_field,
    filled_table,
    incomplete_model,
    refuse_in_order,
    refuse_whole,
)
from appulse.engines.options import CallSettings
from appulse.engines.spark.given import checked_frame, schema_of
from appulse.engines.spark.grouped import spark_grouped
from appulse.engines.spark.inputs import check_names, gathered, known, map_in_arrow, quoted
from appulse.engines.spark.shared import driver_folder
from appulse.engines.spark.tagged import arrow_schema, spark_type
from appulse.imputation.choosing import AutoImputer
from appulse.imputation.imputer import DependencyFill, DependencyImputer, stored
from appulse.imputation.noise import NoisyFill
from appulse.imputation.storage import write_file
from appulse.imputation.versions import VersionedFill, chosen, mapped
from appulse.model.filled import PREFILLED, Prefilled
from appulse.model.stream import stream_names
from appulse.model.streaming import is_streaming

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from appulse.engines.filling import Around
    from appulse.engines.join.call import JoinCall
    from appulse.model.filled import Fill, Filled
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream

# What Spark tells its tasks of the micro-batch at hand.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_WRITTEN: WeakKeyDictionary[DependencyImputer, dict[tuple[str, str, int], str]] = WeakKeyDictionary()


class SharedFill:
    """A fill that travels as a handle; what it stands for is fetched once by each worker process.

    A repository with its indexes is a file, which Spark brings to each machine and workers map into memory. A folder
    of versions is one that all machines see. Other imputers are broadcast.
    """

    in_order = False

    def __init__(self, fill: Fill, spark: SparkSession) -> None:
        self._meaning = fill.meaning()
        self.report = getattr(fill, "report", "")
        self._source: _Source
        if isinstance(fill, VersionedFill):
            self._source = _Versions(fill)
        elif not hasattr(spark, "_jsc"):  # Spark Connect has neither: there it travels with the tasks
            self._source = _Carried(fill)
        elif isinstance(fill, DependencyFill):
            self._source = _Mapped(_file_name(fill, spark), fill.attributes)
        else:
            self._source = _Broadcast(spark.sparkContext.broadcast(fill))

    def meaning(self) -> Meaning:
        """That of the fill."""
        return self._meaning

    @property
    def taken(self) -> int | None:
        """The version that fills the rows of the micro-batch at hand, where there are versions."""
        return self._source.taken() if isinstance(self._source, _Versions) else None

    def fill(self, values: NDArray[Any], time: NDArray[Any], group: NDArray[Any]) -> Filled:
        return self._source.get().fill(values, time, group)

    def describe(self, way: int) -> str:
        return self._source.get().describe(way)


def shared_fill(fill: Fill, spark: SparkSession) -> Fill:
    """A fill for workers; one with an error keeps that, and shares what is behind it."""
    if isinstance(fill, NoisyFill):
        return NoisyFill(SharedFill(fill.whole, spark), fill.deviations)
    return SharedFill(fill, spark)


class _Source(Protocol):
    def get(self) -> Fill: ...


@dataclass(frozen=True)
class _Carried:
    fill: Fill

    def get(self) -> Fill:
        return self.fill


@dataclass(frozen=True)
class _Broadcast:
    shared: Any

    def get(self) -> Fill:
        fill: Fill = self.shared.value
        return fill


@dataclass(frozen=True)
class _Mapped:
    """A file that Spark brings to every machine."""

    name: str
    attributes: tuple[str, ...]

    def get(self) -> Fill:
        from pyspark import SparkFiles  # which the client of Spark Connect does not have

        return mapped(Path(SparkFiles.get(self.name))).bind(self.attributes)


@dataclass(frozen=True)
class _Versions:
    """A folder of versions: outside of micro-batches the one that was the newest when the call was made."""

    fill: VersionedFill

    def taken(self) -> int | None:
        context = TaskContext.get()
        query, batch = (None, None) if context is None else map(context.getLocalProperty, (_QUERY, _BATCH))
        return None if query is None or batch is None else chosen(self.fill.folder, query, int(batch))

    def get(self) -> Fill:
        number = self.taken()
        return self.fill if number is None else self.fill.of(number)


def _file_name(fill: DependencyFill, spark: SparkSession) -> str:
    """The name under which workers find an imputer's file; it is written once for a session."""
    imputer = fill.imputer
    imputer.prepare(fill.attributes)
    known = _WRITTEN.setdefault(imputer, {})
    key = (spark.sparkContext.applicationId, imputer.version, len(imputer.lattices))
    if key not in known:
        path = Path(driver_folder().name) / f"{uuid4().hex}.repository"
        write_file(stored(imputer), path)
        spark.sparkContext.addFile(str(path))
        known[key] = path.name
    return known[key]


def sampled_imputer(imputer: Any, streams: Sequence[Stream]) -> Any:
    """The imputer of a call, those chosen by the driver that are automatic, once: then a mapping by stream name."""
    names = stream_names(streams)
    given = imputer if isinstance(imputer, Mapping) else dict.fromkeys(names, imputer)
    if not any(isinstance(one, str | AutoImputer) for one in given.values()):
        return imputer
    known = dict(zip(names, streams, strict=True))
    return {name: _sampled(one, known[name]) if name in known else one for name, one in given.items()}


def _sampled(imputer: Any, stream: Stream, *, empty_rows: bool = False) -> Any:
    frame = stream.frame

    def sample(most: int, columns: list[str]) -> pa.Table | None:
        if is_streaming(frame) or any(column not in schema_of(stream).names for column in columns):
            return None
        return frame.select(*map(quoted, columns)).limit(most).toArrow()

    return chosen_by_sample(imputer, stream, sample, empty_rows=empty_rows)


def with_shared_fills(call: JoinCall, spark: SparkSession) -> JoinCall:
    """The call with its imputers sent to the workers."""
    refuse_in_order(call.encodings)
    known: dict[int, Fill] = {}
    encodings = []
    for encoding in call.encodings:
        if encoding.fill is not None and not isinstance(encoding.fill, Prefilled):
            shared = known.setdefault(id(encoding.fill), shared_fill(encoding.fill, spark))
            encoding = replace(encoding, fill=shared)  # noqa: PLW2901 - the same, for workers
        encodings.append(encoding)
    return replace(call, streams=tuple(encodings))


def filled_around_frame(
    stream: Stream,
    fill: Around,
    settings: CallSettings,
    *,
    added: tuple[str, str, str] = PREFILLED,
    empty_rows: bool = False,
) -> DataFrame:
    """The frame with what fills rows by those around, lazily: by a stage for each partition."""
    return spark_grouped(
        [stream],
        lambda streams, schemas: resolve_filling(
            streams[0], schemas[0], settings, fill=fill, added=added, empty_rows=empty_rows
        ),
        FillingBucket,
        "filling",
        settings.options,
        whole=True,
    )


def filled_frame(stream: Stream, imputer: Any, *, empty_rows: bool) -> tuple[DataFrame, bool]:
    """The frame with the columns of `filled_table`, lazily; streaming if it is. And whether a stage makes it."""
    fill = bound(_sampled(imputer, stream, empty_rows=empty_rows), incomplete_model(stream))
    given = schema_of(stream)
    check_filled(arrow_schema(given), stream)
    if is_around(fill):
        added = (SAMPLES, WEIGHTS, FILLED_BY)
        return filled_around_frame(stream, fill, CallSettings(), added=added, empty_rows=empty_rows), True
    refuse_whole(fill, stream.name or "stream")
    frame = known(checked_frame(stream), given)
    check_names(frame, given.names, given.names)
    shared = shared_fill(fill, frame.sparkSession)
    new = [T.StructField(name, spark_type(filled_field(name).type)) for name in (SAMPLES, WEIGHTS, FILLED_BY)]
    schema = T.StructType([*given.fields, *new])
    rows = replace(stream, frame=None)
    arrow = arrow_schema(schema)

    def fill_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in gathered(batches):
            yield from filled_table(table, rows, shared, empty_rows=empty_rows).cast(arrow).to_batches()

    return map_in_arrow(frame, fill_task, schema), False
