"""Encounters on Spark: the readings of a group go to one bucket, which makes legs and encounters of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.engines.encounters.bucket import EncounterBucket
from appulse.engines.encounters.call import resolve_encounters
from appulse.engines.spark.grouped import spark_grouped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from appulse.model.stream import Stream


def spark_encounters(streams: Sequence[Stream], settings: Mapping[str, Any]) -> DataFrame:
    """The encounters of Spark frames, lazily; streaming if they are."""

    def resolve(streams: Sequence[Stream], schemas: Sequence[Any]) -> Any:
        return resolve_encounters(streams, schemas, **settings)

    return spark_grouped(streams, resolve, EncounterBucket, "encounters", settings["options"])
