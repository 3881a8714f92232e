"""What workers of a batch query suspect, brought to the driver: a warning in a worker is seen by nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import AccumulatorParam, TaskContext

from appulse.engines.spark.stage import Seen
from appulse.errors import warn_swapped

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession


class _Seen(AccumulatorParam[Seen]):
    """Adds up what tasks report. The driver warns at the first report of swapped rows before there is any answer."""

    def zero(self, value: Seen) -> Seen:  # noqa: ARG002 - as Spark calls it
        return Seen()

    def addInPlace(self, value1: Seen, value2: Seen) -> Seen:  # noqa: N802 - as Spark calls it
        total = Seen(value1.swapped + value2.swapped, value1.answers + value2.answers)
        if total.swapped and not value1.swapped and not total.answers and TaskContext.get() is None:
            warn_swapped(total.swapped)
        return total


def suspicions(spark: SparkSession) -> Accumulator[Seen] | None:
    """Where workers of a batch query report; None on Spark Connect, which has no way for it."""
    if not hasattr(spark, "_jsc"):
        return None
    return spark.sparkContext.accumulator(Seen(), _Seen())
