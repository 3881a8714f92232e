"""The claims C1-C7 of Lim et al. 2006 (Spatial Join CQ), measured: tables, and pictures of them.

Contestants of selection queries: one IBS tree an attribute with counting, the paper's spatial join row by row
(immediate) and by clusters (batch, at its best cluster), and ours. All are compiled, in one process on one core, and
their answers are compared first. The time of a batch includes building the data index; that of ours, reading columns.
Times are the processor's, but for those of loading queries; of changing them both are told.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from appulse.queries.sets import QuerySet
from benchmarks.harness import say
from benchmarks.ibs import IBS
from benchmarks.query_ours import NAMES, Ours, OurWindows, agreed, agreed_windows, ordered
from benchmarks.query_sets import conjunctions, join_queries, range_queries, rows
from benchmarks.spatial_join_cq import ARRIVAL, HILBERT, Z_ORDER, SharedJoinIBS, SpatialJoinCQ, SpatialJoinWindows
from benchmarks.tables import Curves, Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.query_sets import BoxQueries, Matrix

    Flags = NDArray[np.bool_]

Values = dict[str, list[float]]  # of each contestant, one value a run

RUNS = 3
QUERIES, BATCH = 100_000, 10_000
CLUSTERS = (1, 4, 16, 64)  # of rows, tried for the paper's batch where its best is shown
MICROSECONDS = "microseconds a row"
_FEW = 1000  # rows for those whose cost a row does not depend on their number
_PAIRS = 10_000_000  # answers of one call at most: fewer rows where each has many
_LONG = 0.3  # seconds: what takes longer is timed once, all else three times
_REACH = 0.1  # share of the domain that a predicate admits at most, where the paper's 1.0 is not said


def measure(folder: Path | None) -> None:
    """Measure the claims one by one, print their tables, and write them to a folder if there is one."""
    found: list[Curves] = []
    for part in PARTS:
        begun = time.perf_counter()
        for curves in part():
            found.append(curves)
            say(curves.markdown())
        say(f"{part.__name__}: {time.perf_counter() - begun:.0f} s\n")
        if folder is not None:
            write(folder, found)  # what is there so far


def write(folder: Path, found: Sequence[Curves]) -> None:
    """The page ``continuous_queries.md`` and its pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    head = (
        "# Continuous queries: figures\n\nWritten by `python -m benchmarks.continuous_queries --only claims --plots "
        f"FOLDER`: means of {RUNS} runs with 95 % intervals; a run is the median of three calls where these are short. "
        "Times are the processor's, but for those of loading queries, which are by the clock, and of changing them, "
        "which are told both ways. There are "
        "100,000 queries and batches of 10,000 rows (fewer where they have very many answers) if nothing else is said. "
        "Verdicts are in the page on reproduction.\n"
    )
    parts = [curves.markdown(None if curves.name in FACTS else curves.draw(folder)) for curves in found]
    (folder / "continuous_queries.md").write_text("\n".join([head, *parts]), encoding="utf-8")


def took(call: Callable[..., Any], *given: Any) -> float:
    """Seconds of the processor's time of one call: what else runs on the machine counts little."""
    begun = time.process_time()
    call(*given)
    return time.process_time() - begun


def _often(call: Callable[..., Any], *given: Any) -> None:
    for _ in range(16):
        call(*given)


def wall(call: Callable[..., Any], *given: Any) -> float:
    """Seconds of one call by the clock, where threads have a part in it."""
    begun = time.perf_counter()
    call(*given)
    return time.perf_counter() - begun


def usual(call: Callable[..., Any], *given: Any) -> float:
    """Seconds of a call: the median of three if it is short."""
    seconds = [took(call, *given)]
    while len(seconds) < 3 and sum(seconds) < _LONG:
        seconds.append(took(call, *given))
    return median(seconds)


def cost(match: Callable[..., Any], points: Matrix, *more: Any) -> float:
    """Microseconds a row of one run."""
    return 1e6 * usual(match, points, *more) / len(points)


def scan(queries: BoxQueries) -> Callable[[Matrix], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """All pairs in NumPy, attribute by attribute."""
    low, high = (np.ascontiguousarray(side.T) for side in queries.closed())

    def match(points: Matrix) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = []
        for point in points:
            inside = (low[0] <= point[0]) & (point[0] <= high[0])
            for a in range(1, len(point)):
                inside &= (low[a] <= point[a]) & (point[a] <= high[a])
            found.append(np.flatnonzero(inside))
        return np.repeat(np.arange(len(points)), [len(each) for each in found]), np.concatenate(found)

    return match


class Field:
    """All contestants over one set of selection queries."""

    def __init__(self, queries: BoxQueries) -> None:
        self.queries = queries
        self.ours, self.ibs, self.paper = Ours(queries), IBS(queries), SpatialJoinCQ(*queries.closed())
        points = self.rows(0, _FEW)[:100]
        answers = ordered(self.ours.match(points), len(queries))
        self.matches = len(answers) / len(points)
        others: dict[str, Callable[[Matrix], Any]] = {
            "IBS": self.ibs.match,
            "immediate": self.paper.immediate,
            "batch": lambda some: self.paper.match(some, 16),
        }
        for name, match in others.items():
            agreed(name, ordered(match(points), len(queries)), answers)
        few = points[:5]
        agreed("the scan", ordered(scan(queries)(few), len(queries)), answers[answers < len(few) * len(queries)])

    def rows(self, seed: int, n: int = BATCH, skew: float = 0.0) -> Matrix:
        """Rows of one run."""
        return rows(n, self.queries.attributes, 100 + seed, skew=skew)

    def best_cluster(self, points: Matrix) -> int:
        """The best of `CLUSTERS` for the paper's batch."""
        return min(CLUSTERS, key=lambda size: cost(self.paper.match, points, size))

    def costs(self, skew: float = 0.0) -> Values:
        """Microseconds a row of each."""
        n = int(np.clip(_PAIRS / max(self.matches, 1e-9), _FEW, BATCH))
        size = self.best_cluster(self.rows(RUNS, n, skew))
        out: Values = {"IBS": [], "immediate": [], "batch": [], "ours": []}
        for run in range(RUNS):
            points = self.rows(run, n, skew)
            out["IBS"].append(cost(self.ibs.match, points[:_FEW]))
            out["immediate"].append(cost(self.paper.immediate, points[:_FEW]))
            out["batch"].append(cost(self.paper.match, points, size))
            out["ours"].append(cost(self.ours.match, points))
        say(f"  {len(self.queries):,} queries, {self.matches:.3g} matches a row, {n:,} rows, best cluster {size}")
        return out


def lines_of(found: Sequence[Values]) -> dict[str, list[Estimate]]:
    """The lines of a figure, from the values at each place."""
    return {name: [estimate(values[name]) for values in found] for name in found[0]}


def with_lead(
    name: str, title: str, x_name: str, x: Sequence[float | str], found: Sequence[Values], unit: str = MICROSECONDS
) -> list[Curves]:
    """Times, and how many times as long the first contestant takes as each of the others."""
    first = next(iter(found[0]))
    leads = [
        {
            other: [a / b for a, b in zip(values[first], values[other], strict=True)]
            for other in values
            if other != first
        }
        for values in found
    ]
    places = tuple(str(place) for place in x)
    return [
        Curves(name, title, x_name, unit, places, lines_of(found), log=True),
        Curves(
            f"{name}_lead",
            f"{title}: lead",
            x_name,
            f"time of {first} / time of each",
            places,
            lines_of(leads),
            log=True,
        ),
    ]


# --- selection queries ----------------------------------------------------------------------------------------------


def selectivity() -> list[Curves]:
    """C1: the lead over IBS, by how much of the domain predicates admit, and over narrow ranges."""
    out = []
    reaches = (1.0, 0.3, 0.1, 0.03, 0.01)
    for d in (2, 5):
        found = [Field(conjunctions(QUERIES, d, 1, reach=reach)).costs() for reach in reaches]
        out += with_lead(f"c1_{d}", f"C1: the paper's queries, {d} attributes", "reach of a predicate", reaches, found)
    answers = (1, 10, 100)
    found = [Field(range_queries(1_000_000, 2, float(each), 2)).costs() for each in answers]
    return [*out, *with_lead("c1_ranges", "C1: 1,000,000 ranges, 2 attributes", "matches a row", answers, found)]


def cluster_sizes() -> list[Curves]:
    """C3: time by cluster, of the paper's batch for each size of batch, and of ours."""
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)
    out = []
    for d in (2, 5):
        queries = conjunctions(QUERIES, d, 1, reach=_REACH)
        paper = SpatialJoinCQ(*queries.closed())
        found = []
        for size in sizes:
            values: Values = {}
            for batch in (100, 1000, 10_000, 100_000):
                values[f"batches of {batch:,}"] = [
                    cost(paper.match, rows(max(batch, 5000 if size < 512 else 1000), d, 100 + run), size, batch)
                    for run in range(RUNS)
                ]
            found.append(values)
        title = f"C3: the paper's batch by rows a cluster, {d} attributes, reach {_REACH}"
        out.append(Curves(f"c3_{d}", title, "rows a cluster", MICROSECONDS, sizes_of(sizes), lines_of(found), log=True))
    return [*out, our_clusters()]


def sizes_of(sizes: Sequence[int]) -> tuple[str, ...]:
    """Sizes as places: those of powers stand side by side."""
    return tuple(f"{size:,}" for size in sizes)


def our_clusters() -> Curves:
    """Ours at fixed clusters, and as it chooses by itself."""
    settings: dict[str, tuple[BoxQueries, int, float]] = {
        "2, reach 0.1": (conjunctions(QUERIES, 2, 1, reach=0.1), BATCH, 0.0),
        "2, reach 0.1, rows skewed": (conjunctions(QUERIES, 2, 1, reach=0.1), BATCH, 1.0),
        "2, reach 1": (conjunctions(QUERIES, 2, 1), 250, 0.0),
        "2, ranges": (range_queries(QUERIES, 2, 10.0, 2), BATCH, 0.0),
        "5, reach 0.1": (conjunctions(QUERIES, 5, 1, reach=0.1), BATCH, 0.0),
        "5, reach 1": (conjunctions(QUERIES, 5, 1), 1000, 0.0),
        "5, reach 1, rows skewed": (conjunctions(QUERIES, 5, 1), 1000, 1.0),
    }
    choices = {**{str(size): size for size in CLUSTERS}, "automatic": None}
    found: list[dict[str, list[Estimate]]] = []
    for name, (queries, n, skew) in settings.items():
        ours = Ours(queries)
        points = rows(n, queries.attributes, 100, skew=skew)
        columns = {NAMES[a]: pa.array(np.ascontiguousarray(points[:, a])) for a in range(points.shape[1])}
        answers = ordered(ours.set.match(columns, n), len(queries))
        for choice, size in choices.items():
            agreed(f"clusters of {choice}", ordered(ours.set.match(columns, n, size), len(queries)), answers)
        values: Values = {choice: [] for choice in choices}
        for _ in range(7):  # side by side, so that what else runs here is the same for all
            for size in CLUSTERS:
                values[str(size)].append(1e6 * took(ours.set.match, columns, n, size) / n)
        # It looks for the best size now and then: each of its calls has its share of that.
        looks = [1e6 * took(_often, ours.set.match, columns, n) / n / 16 for _ in range(3)]
        values["automatic"] = looks
        middle = {choice: median(each) for choice, each in values.items()}
        best = min(middle[str(size)] for size in CLUSTERS)
        lines = {choice: [Estimate(middle[choice], 0.0)] for choice in choices}
        found.append(lines | {"automatic / best fixed": [Estimate(middle["automatic"] / best, 0.0)]})
        say(f"  ours, {name}: {middle}")
    lines = {choice: [each[choice][0] for each in found] for choice in found[0]}
    title = "C3: ours by points a cluster, medians of 7"
    return Curves("c3_ours", title, "attributes, queries", MICROSECONDS, tuple(settings), lines, log=True)


def number_of_queries() -> list[Curves]:
    """C4: time by the number of queries."""
    numbers = (10_000, 100_000, 1_000_000)
    out = []
    for d in (2, 5):
        found = [Field(conjunctions(n, d, 1, reach=_REACH)).costs() for n in numbers]
        title = f"C4: time by number of queries, {d} attributes, reach {_REACH}"
        out += with_lead(f"c4_{d}", title, "queries", sizes_of(numbers), found)
    return out


def shares_of_attributes() -> list[Curves]:
    """C5: time by the share of attributes that carry predicates; many attributes against a scan."""
    shares = (0.2, 0.4, 0.6, 0.8, 1.0)
    out = []
    for reach, name in ((1.0, "1"), (_REACH, "01")):
        found = [Field(conjunctions(QUERIES, 5, 1, share=share, reach=reach)).costs() for share in shares]
        title = f"C5: time by share of attributes with predicates, 5 attributes, reach {reach}"
        out += with_lead(f"c5_reach_{name}", title, "r_pred", shares, found)
    attributes = (2, 5, 10, 20)
    found = []
    for d in attributes:
        field = Field(conjunctions(10_000, d, 1))  # nearly each has a shape of its own, and is parsed by itself
        through = scan(field.queries)
        costs = [cost(through, field.rows(run, 50)) for run in range(RUNS)]
        found.append({"NumPy scan": costs, **field.costs()})
    title = "C5: time by attributes, all with predicates, 10,000 queries, reach 1"
    return [*out, *with_lead("c5_attributes", title, "attributes", attributes, found)]


def skew() -> list[Curves]:
    """C6: time by the share of rows in 1 % of the domain, and the best cluster."""
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    sizes = (1, 4, 16, 64, 256, 1024)
    field = Field(conjunctions(QUERIES, 2, 1, reach=_REACH))
    title = f"C6: time by skew, 2 attributes, reach {_REACH}"
    out = with_lead("c6", title, "r_skew", shares, [field.costs(share) for share in shares])
    found = [
        {
            f"r_skew {share}": [cost(field.paper.match, field.rows(run, BATCH, share), size) for run in range(RUNS)]
            for share in shares
        }
        for size in sizes
    ]
    title = "C6: the paper's batch by rows a cluster and skew"
    return [
        *out,
        Curves("c6_clusters", title, "rows a cluster", MICROSECONDS, sizes_of(sizes), lines_of(found), log=True),
    ]


def node_reads() -> list[Curves]:
    """The overlapping property: nodes fetched through a buffer, by the order of the rows."""
    buffers = (16, 64, 256, 1024, 4096)
    curves = {"Hilbert": HILBERT, "z-order": Z_ORDER, "arrival": ARRIVAL}
    paper = SpatialJoinCQ(*conjunctions(QUERIES, 2, 1, reach=_REACH).closed())
    out = []
    for size in (1, 16):
        found: list[Values] = [
            {
                name: [
                    paper.node_reads(rows(2000, 2, 100 + run), buffer, size, curve=curve) / 2000 for run in range(RUNS)
                ]
                for name, curve in curves.items()
            }
            for buffer in buffers
        ]
        title = f"Nodes fetched under LRU, {paper.index.nodes:,} nodes, clusters of {size}, batches of 2,000"
        y_name = "nodes a row"
        out.append(
            Curves(f"nodes_{size}", title, "buffer, nodes", y_name, sizes_of(buffers), lines_of(found), log=True)
        )
    return out


# --- window joins ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Window-join queries, and arrivals on one stream that meet a window full of rows of the other."""

    queries: int
    reach: float
    window: int
    arrivals: int

    def costs(self) -> Values:
        """Microseconds an arrival of each contestant."""
        wanted = join_queries(self.queries, 2, 3, reach=self.reach, window=self.window)
        shared, paper = SharedJoinIBS(wanted), SpatialJoinWindows(wanted)
        left_times = np.arange(self.window)
        right_times = left_times[-self.arrivals :]
        out: Values = {"IBS-JS": [], "immediate": [], "batch": [], "ours": []}
        best, found = 0, 0
        for run in range(RUNS):
            left = rows(self.window, 2, 200 + run, levels=1000)
            right = rows(self.arrivals, 2, 300 + run, levels=1000)
            case = (left, left_times, right, right_times)
            alone = (left, left_times, right[:0], right_times[:0])
            ours, ours_alone = OurWindows(wanted, *case), OurWindows(wanted, *alone)
            if run == 0:
                found = agreed_windows(shared, ours, (wanted, *case))
                agreed_windows(paper, ours, (wanted, *case))
                best = min((4, 16, 64), key=partial(took, paper.match, *case))
            for match in (ours.match, ours_alone.match):
                match()  # the first one builds the index
            # What it takes to fill the window with rows that meet nobody is not the arrivals'.
            out["IBS-JS"].append(usual(shared.match, *case) - usual(shared.match, *alone))
            out["immediate"].append(usual(paper.match, *case, 1) - usual(paper.match, *alone, 1))
            out["batch"].append(usual(paper.match, *case, best) - usual(paper.match, *alone, best))
            out["ours"].append(usual(ours.match) - usual(ours_alone.match))
        say(f"  {self}: {found / self.window / self.arrivals:.3g} answers a pair, best cluster {best}")
        return {name: [1e6 * each / self.arrivals for each in values] for name, values in out.items()}


def window_joins() -> list[Curves]:
    """C2 and C7: window joins by how much predicates admit, by window size, and by number of queries."""
    unit = "microseconds an arrival"
    reaches = (1.0, 0.3, 0.1, 0.03)
    title = "C2: window joins, 10,000 queries, windows of 1,000"
    found = [Windows(10_000, reach, 1000, 20).costs() for reach in reaches]
    out = with_lead("c2", title, "reach of a predicate", reaches, found, unit)
    sizes = {100: 100, 1000: 20, 10_000: 10}
    for reach, name, queries in ((1.0, "1", 1000), (0.3, "03", 10_000)):
        found = [Windows(queries, reach, window, arrivals).costs() for window, arrivals in sizes.items()]
        title = f"C7: window joins by window size, {queries:,} queries, reach {reach}"
        out += with_lead(f"c7_reach_{name}", title, "rows a window", sizes_of(tuple(sizes)), found, unit)
    numbers = (1000, 10_000, 30_000)
    found = [Windows(queries, 0.3, 1000, 10).costs() for queries in numbers]
    title = "C7: window joins by number of queries, windows of 1,000, reach 0.3"
    return [*out, *with_lead("c7_queries", title, "queries", sizes_of(numbers), found, unit)]


def several_streams() -> list[Curves]:
    """Joins of three and four streams against nested loops in NumPy."""
    cases = {(3, 60): "3 of 60 rows", (3, 150): "3 of 150", (4, 24): "4 of 24", (4, 40): "4 of 40"}
    found = []
    for streams, n in cases:
        values: Values = {"nested loops in NumPy": [], "ours": []}
        for run in range(RUNS):
            case = Several.of(streams, n, 200, run)
            expected = case.nested_loops()
            if case.ours() != expected:
                raise RuntimeError("nested loops answer otherwise")
            values["nested loops in NumPy"].append(1e3 * took(case.nested_loops))
            values["ours"].append(1e3 * took(case.ours))
        say(f"  {streams} streams of {n} rows: {len(expected)} answers")
        found.append(values)
    title = "Joins of three and four streams, 200 queries"
    return with_lead("streams", title, "streams", tuple(cases.values()), found, "milliseconds, all told")


@dataclass(frozen=True)
class Several:
    """Queries over some streams: an end for the first attribute of each, ``s_i.y <= s_i+1.y``, and a window."""

    points: list[Matrix]
    times: NDArray[np.int64]
    ends: Matrix  # by query and stream
    windows: NDArray[np.int64]

    @staticmethod
    def of(streams: int, n: int, queries: int, seed: int) -> Several:
        """Generated ones, a row of each stream a second."""
        rng = np.random.default_rng([seed, streams])
        points = [rows(n, 2, 1000 * seed + i) for i in range(streams)]
        ends = rng.random((queries, streams))
        return Several(points, np.arange(n), ends, rng.integers(1, 10, queries))

    def nested_loops(self) -> list[tuple[int, ...]]:
        """All choices of rows for all queries; the innermost loops are NumPy's, over rows that meet their own end."""
        found: list[tuple[int, ...]] = []
        k = len(self.points)
        for query, (ends, window) in enumerate(zip(self.ends.tolist(), self.windows.tolist(), strict=True)):
            own = [np.flatnonzero(points[:, 0] <= end) for points, end in zip(self.points, ends, strict=True)]
            grid = [each.reshape([-1 if i == j else 1 for j in range(k)]) for i, each in enumerate(own)]
            holds: Any = np.ones([len(each) for each in own], bool)
            for i in range(k - 1):
                holds &= self.points[i][grid[i], 1] <= self.points[i + 1][grid[i + 1], 1]
            for i in range(k):
                for j in range(i):
                    holds &= np.abs(self.times[grid[i]] - self.times[grid[j]]) <= window
            places = np.nonzero(holds)
            chosen = [each[at].tolist() for each, at in zip(own, places, strict=True)]
            found += [(query, *rows_of) for rows_of in zip(*chosen, strict=True)]
        return sorted(found)

    def ours(self) -> list[tuple[int, ...]]:
        """The same by `ap.match_queries`, texts read and frames made on the way."""
        names = ["r", "s", "t", "u"][: len(self.points)]
        streams = [
            ap.Stream(
                pa.table({"id": self.times, "ts": self.times, "x": points[:, 0], "y": points[:, 1]}),
                key="id",
                time="ts",
                value=ap.Exact("x", "y"),
                name=name,
            )
            for name, points in zip(names, self.points, strict=True)
        ]
        joins = [f"{a}.y <= {b}.y" for a, b in pairwise(names)]
        texts = [
            " AND ".join([*(f"{name}.x <= {end!r}" for name, end in zip(names, ends, strict=True)), *joins])
            + f" WITHIN {window} SECONDS"
            for ends, window in zip(self.ends.tolist(), self.windows.tolist(), strict=True)
        ]
        queries = pa.table({"query": np.arange(len(texts)), "condition": texts})
        answers = ap.match_queries(*streams, queries)
        columns = ["query", *(f"{name}_key" for name in names)]
        return sorted(zip(*(answers[column].to_pylist() for column in columns), strict=True))


# --- queries that come and go, and very many of them ----------------------------------------------------------------


def changes() -> list[Curves]:
    """Fences of 1,000,000 that move, many and few at a time, and rows that are matched after each change."""
    n, told, matched = 1_000_000, 2_500_000, {100_000: 25, 10_000: 250}
    queries = range_queries(n, 2, 10.0, 2)
    low, high = _ends(queries)
    ours = Ours(queries)
    rng = np.random.default_rng(7)
    steps: dict[str, list[tuple[float, float]]] = {}
    rates = []
    for moved, rounds in matched.items():
        new = range_queries(told, 2, 10.0 * told / n, 50 + moved)
        texts, (new_low, new_high) = pa.array(new.conditions(NAMES[:2])), _ends(new)
        change = steps[f"replace {moved:,} queries"] = []
        match = steps[f"match 10,000 rows after each {moved:,}"] = []
        for run in range(rounds):
            keys, at = rng.choice(n, moved, replace=False), slice(run * moved, (run + 1) * moved)
            low[keys], high[keys] = new_low[at], new_high[at]
            change.append(_both_times(ours.set.add, pa.array(keys), texts[at]))
            match.append(_both_times(ours.match, rows(BATCH, 2, 400 + run)))
        _check(ours.set, low, high)
        rates.append([told / sum(each) for each in zip(*change, strict=True)])
    ours.set.settle()
    points = rows(BATCH, 2, 400)
    steps["match 10,000 rows, settled"] = [_both_times(ours.match, points) for _ in range(5)]
    lines = {
        f"{name}, {of}": [Estimate(1e3 * summed([one[i] for one in each]), 0.0) for each in steps.values()]
        for i, of in enumerate(("by the clock", "of the calling thread"))
        for name, summed in (("median", median), ("longest", max))
    }
    speeds = {
        of: [Estimate(rate[i], 0.0) for rate in rates] for i, of in enumerate(("by the clock", "of the calling thread"))
    }
    title = "Fences that move: of 1,000,000 so many at a time, 2,500,000 all told, rows matched after each change"
    sizes = sizes_of(tuple(matched))
    return [
        Curves("changes", title, "step", "milliseconds", tuple(steps), lines),
        Curves("changes_rate", "Fences that move: speed", "at a time", "queries replaced a second", sizes, speeds),
    ]


def _both_times(call: Callable[..., Any], *given: Any) -> tuple[float, float]:
    """Seconds of one call by the clock, and of the processor's time of this thread."""
    begun, own = time.perf_counter(), time.thread_time()
    call(*given)
    return time.perf_counter() - begun, time.thread_time() - own


def ten_million() -> list[Curves]:
    """10,000,000 queries: load, bytes, cost a row."""
    chunk, chunks = 1_000_000, 10
    ours = QuerySet({"a": pa.float64(), "b": pa.float64()}, pa.int64())
    sides, loading = [], 0.0
    for i in range(chunks):
        queries = range_queries(chunk, 2, 1.0, 60 + i)
        sides.append(_ends(queries))
        keys, texts = pa.array(np.arange(chunk) + i * chunk), pa.array(queries.conditions(NAMES[:2]))
        loading += wall(ours.add, keys, texts)
    loading += wall(ours.settle)
    _check(ours, *(np.concatenate(side) for side in zip(*sides, strict=True)))
    costs = []
    for run in range(5):
        points = rows(BATCH, 2, 500 + run)
        columns = {name: pa.array(np.ascontiguousarray(points[:, a])) for a, name in enumerate(NAMES[:2])}
        costs.append(1e6 * usual(ours.match, columns, BATCH) / BATCH)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if peak > 20:
        raise RuntimeError(f"{peak:.1f} GB at the peak, more than 20")
    facts = {
        "seconds to load, all told": loading,
        "bytes a query beyond its text": ours.nbytes / (chunk * chunks),
        f"{MICROSECONDS}, median of 5": median(costs),
        "GB of memory at the peak, of the whole run": peak,
    }
    figures = {"ours": [Estimate(value, 0.0) for value in facts.values()]}
    return [Curves("ten_million", "10,000,000 ranges, 10 matches a row", "what", "see there", tuple(facts), figures)]


def _ends(queries: BoxQueries) -> tuple[Matrix, Matrix]:
    """Low and high ends as columns."""
    low, high = queries.closed()
    return low.copy(), high.copy()


def _check(ours: QuerySet, low: Matrix, high: Matrix) -> None:
    """Raise unless a few rows match the keys that a scan finds."""
    points = rows(5, 2, 600)
    columns = {name: pa.array(np.ascontiguousarray(points[:, a])) for a, name in enumerate(NAMES[:2])}
    row, slots = ours.match(columns, len(points))
    keys = ours.keys(slots).to_numpy()
    for i, point in enumerate(points):
        expected: Flags = ((low <= point) & (point <= high)).all(axis=1)
        if not np.array_equal(np.sort(keys[row == i]), np.flatnonzero(expected)):
            raise RuntimeError("a scan answers otherwise")


FACTS = {"changes", "changes_rate", "ten_million"}  # tables without a picture
PARTS = (
    ten_million,
    changes,
    selectivity,
    cluster_sizes,
    number_of_queries,
    shares_of_attributes,
    skew,
    node_reads,
    window_joins,
    several_streams,
)
