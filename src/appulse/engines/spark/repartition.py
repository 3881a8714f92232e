"""Other numbers of partitions for a stopped query: Spark moves its states, a new version of the plan has the tiles."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from appulse.engines.spark.settings import on_connect
from appulse.engines.spark.tiling import BEGINNING
from appulse.errors import CheckpointError, warn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from appulse.engines.spark.files import Folder
    from appulse.engines.spark.tiles import TilePlan
    from appulse.engines.spark.tiling import Tiling

_PARTITIONS = "spark.sql.shuffle.partitions"


def repartitioned(spark: SparkSession, folder: Folder, own: Tiling, wanted: TilePlan, newest: int | None) -> Tiling:
    """The tiling of a checkpoint with as many tiles as ``wanted``, for rows after the ``newest``.

    No more tasks run at once than Spark has states, so it spreads these over as many where they are fewer.
    """
    states = _states(spark, folder)
    slots = own.latest.slots if states is None else states
    if states is not None and states < wanted.tiles:
        _spread(spark, folder, states, wanted.tiles)
        slots = wanted.tiles
    return own.followed_by(replace(wanted, slots=slots), BEGINNING if newest is None else newest + 1)


def respread(spark: SparkSession, folder: Folder, own: Tiling, wanted: int) -> None:
    """Have Spark keep the states of buckets in as many partitions as ``wanted``; the buckets stay the same.

    The keys of rows say which bucket has their state, and nothing can tell which keys a bucket would give away.
    """
    buckets = own.latest.tiles
    states = _states(spark, folder)
    # Who asks for as many as there are buckets has what the first start had.
    tasks = (own.latest.slots or buckets) if wanted == buckets else wanted
    if states is None or states == tasks:
        return
    _spread(spark, folder, states, tasks)
    if tasks > buckets:
        warn(
            f"The checkpoint {folder.path} has its states in {buckets} buckets, of which no more than one task works "
            f"on each: of {tasks} partitions {tasks - buckets} have nothing to do. The first start of a job says how "
            "many buckets there are; ask for as many partitions there as the job may ever have.",
        )


def _states(spark: SparkSession, folder: Folder) -> int | None:
    """Over how many partitions Spark has the states of a query; None before its first batch."""
    begun, ended = _newest(folder, "offsets"), _newest(folder, "commits")
    if begun is None:
        return None
    states = _partitions_of(folder, begun)
    before = states if ended is None else _partitions_of(folder, ended)
    if before != states:  # it was stopped while it moved them
        _move(spark, folder, before, states)
    return states


def _newest(folder: Folder, kind: str) -> int | None:
    """The newest batch that has begun ("offsets"), or ended ("commits")."""
    return max((int(name) for name in folder.names(kind) if name.isdecimal()), default=None)


def _partitions_of(folder: Folder, batch: int) -> int:
    lines = (folder.read(f"offsets/{batch}") or "").splitlines()
    return int(json.loads(lines[1])["conf"][_PARTITIONS])


def _spread(spark: SparkSession, folder: Folder, states: int, wanted: int) -> None:
    """Have Spark move the states of a query, between two batches."""
    if _newest(folder, "offsets") != _newest(folder, "commits"):
        raise CheckpointError(
            f"The last batch of the checkpoint {folder.path} has not ended, and Spark moves its states, which are in "
            f"{states} partitions, between batches only. Start the job without partitions= and with "
            'trigger={"availableNow": True} (a job file: without partitions, by appulse run --once), let it end by '
            "itself, and start it with partitions= again."
        )
    _move(spark, folder, states, wanted)


def _move(spark: SparkSession, folder: Folder, states: int, wanted: int) -> None:
    if on_connect(spark):
        raise CheckpointError(
            f"Spark keeps the states of the checkpoint {folder.path} in {states} partitions, and has no way to spread "
            f"them over {wanted} through Spark Connect. Start the job beside the cluster once, with partitions=: "
            "appulse run --master. Or start without them, or with a new checkpoint."
        )
    manager = _manager(spark)
    if manager is None:
        raise CheckpointError(
            f"Spark keeps the states of the checkpoint {folder.path} in {states} partitions, and Spark {spark.version} "
            f"cannot spread them over {wanted}; 4.2 can. Start without partitions=, or with a new checkpoint."
        )
    manager.repartition(folder.path, wanted, False)  # noqa: FBT003 - Java knows no names


def _manager(spark: SparkSession) -> Any:
    """What moves states; None before Spark 4.2."""
    from py4j.protocol import Py4JError

    session: Any = spark._jsparkSession  # noqa: SLF001 - PySpark has no public door to it
    try:
        return session.streamingCheckpointManager()
    except Py4JError:
        return None
