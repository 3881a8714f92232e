"""What stands behind the frames that calls return."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from appulse.engines.results import Behind, is_token, new_token
from appulse.engines.spark.plans import aliases
from appulse.engines.spark.tagged import ANSWER, select_tag
from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

    from appulse.engines.base import Call
    from appulse.engines.spark.files import Folder
    from appulse.engines.spark.tiling import Tiling


@dataclass(frozen=True)
class SparkResult:
    """What stands behind a result frame."""

    call: Call[Any]
    tiling: Tiling
    rows: DataFrame  # of a streaming result tagged rows, of a batch result the answers alone
    answers: T.StructType
    rejects: T.StructType
    bad_rows: DataFrame | None  # of a batch result: the rejects alone
    rebuild: Callable[..., SparkResult]  # with another tiling, and perhaps a folder of end marks
    replanned: bool = False  # whether the call asks for tiles of its own making
    tiled: bool = False  # whether its partitions are tiles of space, of which a later start may have others
    judge: Callable[[Folder], Callable[[DataFrame, int], DataFrame]] | None = None  # what makes a batch tagged rows
    first_rejects: pa.Table | None = None  # of a streaming result: what was refused before any row
    name: str = ""  # of a streaming result: that of its metrics
    upstream: tuple[SparkResult, ...] = ()  # the calls in the same query whose answers come in
    stateless: tuple[SparkResult, ...] = ()  # the same, where no state is behind them: they set no watermark
    stage_lag: int = 0  # microseconds that Spark's watermark is ahead of the rows that come in

    @property
    def chains(self) -> bool:
        """Whether a stage keeps state, here or before, so that calls on the answers can set no watermark."""
        return self.call.stateful or bool(self.upstream)

    @property
    def lag(self) -> int | None:
        """The same of its answers; None where they may be of any age."""
        own = self.call.lag
        passes_on = not self.call.stateful and any(result.lag is None for result in self.upstream)
        return None if own is None or passes_on else self.stage_lag + own

    @property
    def changes(self) -> bool:
        """Whether its answers come and go, by a column of its own or, without state, by one that it passes on."""
        passes_on = not self.call.stateful and "change" in self.answers.names
        return self.call.emits_changes or (passes_on and any(result.changes for result in self.upstream))

    @property
    def earlier(self) -> list[SparkResult]:
        """All calls before this one in the same query, the first first."""
        given = (*self.stateless, *self.upstream)
        return list({known.name: known for result in given for known in (*result.earlier, result)}.values())

    @property
    def calls(self) -> list[SparkResult]:
        """Those of them with state, here or before."""
        found = {known.name: known for result in self.upstream for known in (*result.calls, result)}
        return list(found.values())


_BEHIND: Behind[SparkResult] = Behind()
_RESULTS: weakref.WeakKeyDictionary[DataFrame, SparkResult] = weakref.WeakKeyDictionary()


def remember(result: SparkResult) -> DataFrame:
    """The frame of answers that the user gets; what stands behind it, and frames made of it, can be found again."""
    if result.judge is not None:
        frame = result.rows.mapInArrow(_only_by_start, result.answers)
    elif result.bad_rows is not None:
        frame = result.rows
    else:
        frame = select_tag(result.rows, ANSWER)
    token = new_token()
    frame = frame.alias(token)  # a name in the plan, by which frames made of this one are known
    _RESULTS[frame] = result
    for name in (token, result.name):
        _BEHIND.keep(name, frame, result)
    return frame


def result_of(frame: DataFrame) -> SparkResult:
    """What stands behind a frame that a call of appulse returned, or that was made of one."""
    own = _RESULTS.get(frame)
    found = [own] if own is not None else [_BEHIND.find(token) for token in aliases(frame, is_token)]
    if len(found) > 1:
        raise BadArgument(f"This DataFrame is made of {len(found)} results. Pass one of them itself.")
    if not found or found[0] is None:
        raise BadArgument(
            "This DataFrame is not what a call of appulse returned, nor visibly made of it; a cache and a checkpoint "
            "hide what a frame is made of. Pass the result itself, before select or filter."
        )
    return found[0]


def known_result(frame: DataFrame) -> SparkResult | None:
    """What stands behind a frame that a call of appulse returned, itself; None of other frames."""
    return _RESULTS.get(frame)


def own_result(frame: DataFrame) -> SparkResult:
    """What stands behind a frame that a call of appulse returned, itself."""
    if frame not in _RESULTS:
        raise BadArgument(
            "This DataFrame is not what a call of appulse returned. Pass the result itself, before select or filter; "
            "a function as sink may select and filter what is written."
        )
    return _RESULTS[frame]


def observed_result(name: str) -> SparkResult | None:
    """The streaming result whose metrics have a name; None if it is none of ours."""
    return _BEHIND.find(name)


def rejects_of(result: DataFrame) -> DataFrame:
    """Rows of a batch call that could not be used."""
    known = result_of(result)
    if known.bad_rows is None:
        raise BadArgument(
            "Rejects of a streaming result leave with its query. Give them a sink: ap.start(result, sink, rejects=...)."
        )
    return known.bad_rows


def _only_by_start(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise BadArgument(
        "Queries that are a stream change between micro-batches, which only ap.start sees: ap.start(result, sink, "
        "checkpoint=...), not result.writeStream."
    )
