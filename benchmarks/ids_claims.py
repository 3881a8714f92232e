"""The claims I1 to I3 of Ren et al. 2019 and what stands beside them, measured: tables, and pictures of them.

Table 3 swept in full: alpha, dimensions, epsilon, window, size of the repository, missing attributes. Its defaults are
lost; here alpha 0.5, 3 dimensions (weather has 4), epsilon 0.1, w 1,000, 30,000 rows in the repository, 1 attribute
missing in 30 % of the rows. Attributes are in [0, 1]. Every attribute has a rule by each of up to three others. DD+join
(imputation by scans, then all pairs of instances) and Join-iDS as printed are compiled with the same care as ours;
answers of all three are compared at every place. Times are the processor's, of up to 200 ticks with full windows.
F-scores are of 800 rows a stream, 30 % of them with holes, 3,000 rows in the repository, rules discovered there;
several holes of a row are filled together; means of 3 draws of holes with 95 % intervals. All else is one run a place.
Parts run side by side, one process a core.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

import appulse as ap
from benchmarks import incomplete_data as data_sets
from benchmarks.harness import say
from benchmarks.ids import JoinIDS, Question, Switches, straight
from benchmarks.ids_accuracy import accuracy, levels, sparse
from benchmarks.ids_data import all_of, imputer_of
from benchmarks.ids_index import cost, index_of
from benchmarks.incomplete_data import DataSet, holes
from benchmarks.incomplete_quality import NEAR
from benchmarks.tables import Curves, Estimate
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.ids_index import Index

    Matrix = NDArray[np.float64]
    Figures = dict[str, float]
    Part = Callable[[], list[Curves]]

MICROSECONDS = "microseconds a tick"
WHO = ("DD+join", "Join-iDS", "ours")
_ROWS = 10_256  # of a stream: a window of 10,000 and the ticks to be measured
_FEW = 0.3  # seconds that the slow ones get at a place
CLOSE = 0.1  # of the pairs, where dimensions are compared at as many answers
REAL = data_at().is_dir()
SETS = (("correlated", 3, 0.01), *((("weather", 4, 0.02),) if REAL else ()))  # with attributes, tolerance of rules


@dataclass(frozen=True)
class Setting:
    """A place of Table 3.

    ``width`` is the tolerance of all rules, ``marginal`` the values where none has a match; ``near`` is the share of
    complete pairs within epsilon, where that is given in place of epsilon.
    """

    data: str = "correlated"
    alpha: float = 0.5
    d: int = 3
    epsilon: float = 0.1
    w: int = 1000
    repository: int = 30_000
    m: int = 1
    width: float = 0.01
    marginal: int = 256
    near: float | None = None
    ticks: int = 200

    def given(self) -> Given:
        """The data, the same for all questions."""
        return given(self.data, self.d, self.repository, self.width, self.marginal)

    @property
    def question(self) -> Question:
        epsilon = self.epsilon if self.near is None else self.given().data.near(self.near)
        return Question(epsilon, self.alpha, self.w)


class Given(NamedTuple):
    """A data set, its rules, and the indexes of Join-iDS and of DD+join."""

    data: DataSet
    imputer: ap.DependencyImputer
    tree: Index
    scans: Index


@lru_cache(maxsize=2)
def given(name: str, d: int, repository: int, width: float, marginal: int) -> Given:
    """A data set, and what is made of it once for many questions."""
    data = all_of(_ROWS, d, repository)[name]()
    imputer = imputer_of(data, width, marginal)
    return Given(data, imputer, index_of(imputer, data.names), index_of(imputer, data.names, scan=True))


def rows_of(data: DataSet, m: int) -> list[Matrix]:
    """Both streams with their holes."""
    return [holes(part, 0.3, m, seed) for seed, part in enumerate((data.left, data.right))]


def took(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, and what came of it."""
    begun = time.process_time()
    found = call()
    return time.process_time() - begun, found


class Ours:
    """Our join by hand, under count windows."""

    def __init__(self, data: DataSet, rows: Sequence[Matrix], imputer: Any, question: Question) -> None:
        self.frames = [stream.frame for stream in data.streams(rows[0], rows[1])]
        left, right = (replace(stream, frame=None) for stream in data.streams(rows[0], rows[1]))
        self.join = ap.SimilarityJoin(
            left,
            right,
            epsilon=question.epsilon,
            probability=question.alpha,
            window=ap.CountWindow(question.w),
            imputer=imputer,
        )

    def push(self, first: int, last: int) -> pa.Table:
        """These ticks; the last of them is held until the next one comes."""
        return self.join.push(
            **dict(zip(("left", "right"), (f.slice(first, last - first) for f in self.frames), strict=True))
        )


def contest(at: Setting) -> Figures:
    """Times a tick at a place, and what Join-iDS counts; the answers of all are compared."""
    data, imputer, index, scans = at.given()
    question, w = at.question, at.w
    rows = [part[: w + at.ticks + 8] for part in rows_of(data, at.m)]
    paper, slow = JoinIDS(rows, imputer, question, index=index), straight(rows, imputer, question, scans)
    ours = Ours(data, rows, imputer, question)
    ours.push(0, w + 1)
    slow.fill(0, w)
    seconds, _ = took(lambda: paper.run(0, w))
    few = max(3, min(at.ticks, int(at.ticks * _FEW / max(1e-9, seconds * at.ticks / w))))
    seconds, found = took(lambda: paper.run(w, w + few))
    figures = {name: count / max(1, found.counts["joined"]) for name, count in found.counts.items()}
    figures["Join-iDS"] = seconds / few
    figures["instances"] = found.counts["products"] / few
    # Ours holds back one tick: what it pushed first has answers of the window's last tick.
    seconds, told = took(lambda: ours.push(w + 1, w + 1 + few))
    figures["ours"] = seconds / few
    pairs = set(zip(told["left_key"].to_pylist(), told["right_key"].to_pylist(), strict=True))
    wanted = {(i, j) if a == 0 else (j, i) for a, i, _, j in found.pairs.tolist()}
    if pairs != wanted:
        raise RuntimeError(f"{at}: Join-iDS has {len(wanted)} answers, ours {len(pairs)}")
    least = max(1, few // 10)
    seconds, same = took(lambda: slow.run(w, w + least))
    known = {pair: p for pair, p in found.told.items() if max(pair[1], pair[3]) < w + least}
    if same.told.keys() != known.keys() or any(abs(p - known[pair]) > 1e-9 for pair, p in same.told.items()):
        raise RuntimeError(f"{at}: DD+join has {len(same.told)} answers, Join-iDS {len(known)}")
    figures["DD+join"] = seconds / least
    incomplete = sum(found.counts[name] for name in ("left_observed", "left_boxed", "left_filled"))
    figures["spared"] = 1.0 - found.counts["left_filled"] / max(1, incomplete)
    figures["answers"] = len(found.pairs) / max(1, found.counts["joined"])
    figures["apart"] = 1.0 - figures["met"]
    return figures


def swept(name: str, title: str, what: str, x: Sequence[float | str], places: Sequence[Setting]) -> list[Curves]:
    """Times along one row of Table 3, twice: the shape on a linear scale is in the table."""
    found = [contest(at) for at in places]
    lines = {who: [Estimate(1e6 * one[who], 0.0) for one in found] for who in WHO}
    shares = {
        told: [Estimate(one[key], 0.0) for one in found]
        for key, told in (
            ("apart", "cells"),
            ("pruned_common", "common attributes"),
            ("pruned_object", "objects"),
            ("pruned_sample", "samples"),
            ("refined", "left"),
            ("answers", "answers"),
            ("instances", "pairs of instances a tick"),
        )
    }
    return [
        Curves(f"i3_{name}", f"I2, I3: time by {title}", what, MICROSECONDS, tuple(x), lines, log=True),
        Curves(
            f"i3_{name}_pruned", f"I3: what Join-iDS prunes by {title}", what, "share of the pairs", tuple(x), shares
        ),
    ]


def table_3(*, quick: bool) -> Iterator[Part]:
    """Table 3, row by row."""
    at = Setting(ticks=60 if quick else 200)
    bases = {"synthetic": at} | ({"real": replace(at, data="weather", d=4, width=0.02)} if REAL else {})
    alphas = (0.1, 0.9) if quick else (0.1, 0.2, 0.5, 0.8, 0.9)
    epsilons = (0.1, 0.3) if quick else (0.1, 0.2, 0.3, 0.4, 0.5)
    sizes = (10_000, 30_000) if quick else (10_000, 20_000, 30_000, 40_000, 50_000)
    windows = (500, 1000) if quick else (500, 1000, 2000, 4000, 5000, 10_000)
    dimensions = (3, 4) if quick else (2, 3, 4, 5, 6, 10)
    for kind, base in bases.items():
        name = base.data
        yield row(f"alpha_{kind}", f"alpha, {name}", "alpha", alphas, [replace(base, alpha=x) for x in alphas])
        places = [replace(base, epsilon=x) for x in epsilons]
        yield row(f"epsilon_{kind}", f"epsilon, {name}", "epsilon", epsilons, places)
        places = [replace(base, repository=x) for x in sizes]
        yield row(f"r_{kind}", f"repository, {name}", "rows", sizes, places)
        # At w = 10,000 and epsilon 0.1 there are millions of answers in the windows.
        places = [replace(base, w=x, epsilon=0.05) for x in windows]
        yield row(f"w_{kind}", f"window, {name}, epsilon 0.05", "w", windows, places)
    yield row("d", "dimensions, correlated", "dimensions", dimensions, [replace(at, d=x) for x in dimensions])
    # At one epsilon fewer pairs are close the more attributes there are. In two, rules match a thousand rows.
    several = tuple(x for x in dimensions if x > 2)
    title = f"dimensions, correlated, {CLOSE:.0%} of the pairs within epsilon"
    yield row("d_near", title, "dimensions", several, [replace(at, d=x, near=CLOSE) for x in several])
    yield from missing(at, quick=quick)
    # Stocks lie so close that rules match a fifth of the repository: it is small here, too.
    names = tuple(name for name in all_of(_ROWS, 3, 3000) if not name.startswith("beijing"))
    title = f"data set, 3,000 rows in the repository, {NEAR:.0%} of the pairs within epsilon"
    yield row("data", title, "data", names, [replace(at, data=x, repository=3000, near=NEAR) for x in names])


def missing(at: Setting, *, quick: bool) -> Iterator[Part]:
    """The row of missing attributes.

    Three holes of 100 values each make a million instances: rules are narrow here, the repository and windows small.
    Three of weather's four attributes are too many even so: the one that is left may be the wind, which takes few
    values, so that it matches over a quarter of the rows.
    """
    few = replace(at, w=200, repository=1000, width=0.005, marginal=8, epsilon=0.2)
    rows = [("synthetic", replace(few, d=6), (1, 2) if quick else (1, 2, 3))]
    if REAL:
        rows.append(("real", replace(few, data="weather", d=4), (1, 2)))
    for kind, base, holed in rows:
        title = f"missing attributes, {base.data}, {base.d} attributes, w {base.w}, {base.repository:,} rows"
        yield row(f"m_{kind}", title, "missing", holed, [replace(base, m=m) for m in holed])


def row(name: str, title: str, what: str, x: Sequence[float | str], places: Sequence[Setting]) -> Part:
    """One row of Table 3, to be measured."""
    return partial(swept, name, title, what, x, places)


def ablation(*, quick: bool) -> Iterator[Part]:
    """Join-iDS with one step off at a time, at an epsilon that leaves objects alone and at one that does not."""
    for data, d, width in SETS:
        at = Setting(data, d=d, width=width, ticks=100 if quick else 200)
        for epsilon in (0.05, 0.2):
            yield partial(_ablated, replace(at, epsilon=epsilon))


def _ablated(at: Setting) -> list[Curves]:
    made, imputer, index, _ = at.given()
    rows = [part[: at.w + at.ticks] for part in rows_of(made, at.m)]
    steps = [None, *(field.name for field in fields(Switches))]
    lines: dict[str, list[Estimate]] = {}
    answers = None
    for step in steps:
        switches = replace(Switches(), **({step: False} if step else {}))
        join = JoinIDS(rows, imputer, at.question, switches, index=index if switches.clusters else None)
        join.run(0, at.w)
        seconds, found = took(lambda: join.run(at.w, at.w + at.ticks))  # noqa: B023 - called at once
        if answers is not None and set(found.told) != answers:
            raise RuntimeError(f"{at}: without {step} there are other answers")
        answers, counts = set(found.told), found.counts
        incomplete = sum(counts[name] for name in ("left_observed", "left_boxed", "left_filled"))
        for name, value in {
            MICROSECONDS: 1e6 * seconds / at.ticks,
            "met": counts["met"] / counts["joined"],
            "by common attributes": counts["pruned_common"] / counts["joined"],
            "by objects": counts["pruned_object"] / counts["joined"],
            "by samples": counts["pruned_sample"] / counts["joined"],
            "refined": counts["refined"] / counts["joined"],
            "never looked up": counts["left_observed"] / max(1, incomplete),
            "never filled": 1.0 - counts["left_filled"] / max(1, incomplete),
            "rows of the repository a tick": counts["rows"] / at.ticks,
        }.items():
            lines.setdefault(name, []).append(Estimate(value, 0.0))
    title = f"I3: Join-iDS with one step off, {at.data}, epsilon {at.epsilon}"
    names = tuple(f"without {step}" if step else "all of it" for step in steps)
    what = "share of the pairs, or of incomplete objects"
    return [Curves(f"ids_steps_{at.data}_{at.epsilon}", title, "steps", what, names, lines)]


def apart(*, quick: bool) -> list[Curves]:
    """Imputation and join apart."""
    names: list[str] = []
    lines: dict[str, list[Estimate]] = {}
    for data, d, width in SETS:
        at = Setting(data, d=d, width=width, ticks=100 if quick else 200)
        made, imputer, index, known = at.given()
        rows = [part[: at.w] for part in rows_of(made, at.m)]
        streams = made.streams(rows[0], rows[1])
        scans = straight(rows, imputer, at.question, known)
        tree = JoinIDS(rows, imputer, at.question, Switches.none(), index=index)
        tree.fill(0, 2)
        lap = {
            "scan": took(lambda: scans.fill(0, at.w))[0] / at.w,  # noqa: B023 - called at once
            "index": took(lambda: tree.fill(0, at.w))[0] / at.w,  # noqa: B023
            "ours": took(lambda: [ap.impute(one, imputer) for one in streams])[0] / at.w,  # noqa: B023
        }
        whole = contest(at)
        names.append(data)
        for name, value in {
            "imputation by scans": lap["scan"],
            "by the index": lap["index"],
            "by ours": lap["ours"],
            "DD+join in all": whole["DD+join"],
            "Join-iDS in all": whole["Join-iDS"],
            "ours in all": whole["ours"],
        }.items():
            lines.setdefault(name, []).append(Estimate(1e6 * value, 0.0))
    return [Curves("ids_apart", "I2: imputation and join apart", "data", MICROSECONDS, tuple(names), lines)]


def clusters() -> list[Curves]:
    """Appendix B.2: rows of clusters that a box touches, as foretold, for clusters by cost and by turns."""
    lines: dict[str, list[Estimate]] = {"by cost": [], "by turns": []}
    widths = (0.002, 0.01, 0.05)
    for width in widths:
        data = data_sets.correlated(10, 3, 30_000)
        rules = [ap.DifferentialDependency({"a0": width, "a1": 10 * width}, "a2", 10.0)]
        imputer = ap.DependencyImputer(data.complete, rules, verified=())
        for name, line in lines.items():
            line.append(Estimate(cost(index_of(imputer, data.names, by_cost=name == "by cost"), 2), 0.0))
    return [
        Curves(
            "ids_clusters",
            "Appendix B.2: cost of clusters, a rule ten times wider in a1",
            "tolerance of a0",
            "rows",
            widths,
            lines,
        )
    ]


def all_parts(*, quick: bool) -> list[Part]:
    """The parts of the page, in order."""
    return [
        *table_3(quick=quick),
        *ablation(quick=quick),
        partial(apart, quick=quick),
        clusters,
        partial(levels, quick=quick),
        partial(sparse, quick=quick),
        *accuracy(quick=quick),
    ]


def _measured(place: int, *, quick: bool) -> tuple[float, list[Curves]]:
    """One part in a process of its own, with the seconds it took of the processor."""
    contest(Setting(w=20, ticks=10, repository=1000))  # compiles
    return took(all_parts(quick=quick)[place])


def measure(folder: Path | None, *, quick: bool) -> None:
    """Measure the parts, a process per core; print the tables, and write them to a folder if there is one."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    contest(Setting(w=20, ticks=10, repository=1000))  # compiles, once
    begun, busy, page = time.perf_counter(), 0.0, []
    count = len(all_parts(quick=quick))
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for seconds, part in pool.map(partial(_measured, quick=quick), range(count)):
            busy += seconds
            for curves in part:
                say(curves.markdown())
                drawn = folder is not None and not isinstance(curves.x[0], str) and not curves.name.endswith("_pruned")
                page.append(curves.markdown(curves.draw(folder) if folder is not None and drawn else None))
            say(f"{seconds:.0f} s of the processor, {time.perf_counter() - begun:.0f} s since the start\n")
    minutes = (time.perf_counter() - begun) / 60
    told = f"One run: {minutes:.0f} minutes on {os.cpu_count()} cores, {busy / 60:.0f} minutes of the processor.\n"
    if folder is not None:
        (folder / "incomplete_join.md").write_text("\n".join([HEAD, told, *page]), encoding="utf-8")


HEAD = (
    "# Joins over streams with holes: figures\n\nWritten by `python -m benchmarks.incomplete_join --only claims "
    "--plots FOLDER`. "
    + " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    + " Verdicts are in the page on reproduction.\n"
)
