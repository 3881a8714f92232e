"""Our standing queries as a contestant: on the same points as the others, compared with what they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from appulse.engines.multi_queries.call import resolve_window_queries
from appulse.engines.multi_queries.queries import WindowQueries
from appulse.engines.multi_queries.rows import END, BufferedRows
from appulse.queries.sets import QuerySet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.query_sets import BoxQueries, JoinQueries
    from benchmarks.spatial_join_cq import SharedJoinIBS, SpatialJoinWindows

    Matrix = NDArray[np.float64]
    Ints = NDArray[np.int64]

NAMES = tuple("abcdefghijklmnopqrst")


class Ours:
    """Our set of queries, by their texts."""

    def __init__(self, queries: BoxQueries) -> None:
        names = NAMES[: queries.attributes]
        self.set = QuerySet(dict.fromkeys(names, pa.float64()), pa.int64())
        self.set.add(pa.array(np.arange(len(queries))), pa.array(queries.conditions(names)))
        self.set.settle()

    def match(self, points: Matrix) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The matching pairs of row and query; slots are numbers of queries here."""
        columns = {
            name: pa.array(np.ascontiguousarray(points[:, i])) for i, name in enumerate(NAMES[: points.shape[1]])
        }
        return self.set.match(columns, len(points))


def ordered(pairs: tuple[Any, Any], queries: int) -> Ints:
    """Pairs as numbers in order, each once."""
    coded: Ints = np.asarray(pairs[0], np.int64) * queries + np.asarray(pairs[1], np.int64)
    found = np.unique(coded)
    if len(found) < len(coded):
        raise RuntimeError("a contestant reported a pair twice")
    return found


def agreed(name: str, found: Ints, expected: Ints) -> None:
    """Raise unless a contestant's pairs are ours."""
    if not np.array_equal(found, expected):
        raise RuntimeError(f"{name} answers otherwise: {len(found)} pairs, ours are {len(expected)}")


class OurWindows:
    """Our queries over the windows of two streams, by their texts."""

    def __init__(self, wanted: JoinQueries, left: Matrix, left_times: Ints, right: Matrix, right_times: Ints) -> None:
        streams, queries = window_frames(wanted, left, left_times, right, right_times)
        tables = [stream.frame for stream in streams]
        settings: dict[str, Any] = {"probability": None, "window": None, "on_reject": "fail"}
        call = resolve_window_queries(streams, tables, queries.schema, **settings)
        self._call, self._queries = call, WindowQueries(call)
        self._queries.change(queries)
        self._rows = {i: call.encode(i, table)[0] for i, table in enumerate(tables)}

    def match(self) -> tuple[Ints, Ints, Ints]:
        """The matching triples of left row, right row and query; slots are numbers of queries here."""
        found = self._queries.matched(
            BufferedRows(self._call.streams, arrival=self._call.arrival).push(self._rows, END)
        )
        return found.rows[0], found.rows[1], found.slot.astype(np.int64)


def agreed_windows(
    peer: SharedJoinIBS | SpatialJoinWindows,
    ours: OurWindows,
    case: tuple[JoinQueries, Matrix, Ints, Matrix, Ints],
) -> int:
    """How many answers there are; raises unless both have the same."""
    mine = np.stack([np.asarray(part, np.int64) for part in ours.match()])
    theirs = np.stack([np.asarray(part, np.int64) for part in peer.match(*case[1:])])
    if not np.array_equal(mine[:, np.lexsort(mine)], theirs[:, np.lexsort(theirs)]):
        raise RuntimeError(f"{type(peer).__name__} answers otherwise")
    return int(mine.shape[1])


def window_frames(
    wanted: JoinQueries, left: Matrix, left_times: Ints, right: Matrix, right_times: Ints
) -> tuple[list[ap.Stream], pa.Table]:
    """The same as streams and a frame of queries."""
    streams = [
        ap.Stream(
            pa.table({"id": np.arange(len(points)), "ts": times, "x": points[:, 0], "y": points[:, 1]}),
            key="id",
            time="ts",
            value=ap.Exact("x", "y"),
            name=name,
        )
        for name, points, times in (("r", left, left_times), ("s", right, right_times))
    ]
    texts = wanted.conditions(["r.x", "r.y"], ["s.x", "s.y"])
    return streams, pa.table({"query": np.arange(len(wanted)), "condition": texts})
