"""Fence events on Spark: the readings of a thing go to one bucket, which knows what it is inside of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from appulse.engines.fences.bucket import FenceBucket
from appulse.engines.fences.call import resolve_fences
from appulse.engines.spark.grouped import spark_grouped
from appulse.engines.spark.shared import shared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from appulse.model.stream import Stream


def spark_fences(stream: Stream, fences: pa.Table, settings: Mapping[str, Any]) -> DataFrame:
    """The events of a Spark frame, lazily; streaming if it is."""

    def resolve(streams: Sequence[Stream], schemas: Sequence[Any]) -> Any:
        call = resolve_fences(streams[0], schemas[0], fences, **settings)
        held = shared(call.fences.get(), stream.frame.sparkSession)
        return call if held is None else replace(call, fences=held)

    return spark_grouped([stream], resolve, FenceBucket, "fences", settings["options"], by_key=True)
