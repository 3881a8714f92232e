"""The claims S5 to S8 of Ali et al. 2007 on the simulated network, measured: tables, and pictures of them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.optimize import nnls

from appulse.lab.network import Clusters, Observations, Settings, Sizes, Topology, centralised, cost, simulate
from appulse.lab.network.store import Store
from appulse.operators.sensor_join import SensorJoin, SensorPlan
from benchmarks import sensor_fields as fields
from benchmarks.harness import say
from benchmarks.mjoin import BUCKETS, MJoin
from benchmarks.network_cases import Case, case, policies, same, updates
from benchmarks.tables import Curves, Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from appulse.lab.network import Outcome

RUNS = 3
SIZES = tuple(range(200, 2001, 200))
CAPACITY = 120.0  # probes that a head handles in a round of 0.1 s: what full probing needs at about 1,100 sensors
BOARD = (5, 10, 15, 20, 25)
# Fig. 12, per cent less by feedback, at 200 to 2,000 sensors.
PRINTED = {
    "probes": (0, 29.1, 41.2, 50.3, 60.8, 65.2, 69.6, 74.4, 77.4, 79.4),
    "delay": (0, 23.6, 30.4, 37.7, 47.5, 54.1, 58.8, 65.4, 67.6, 70.1),
    "drop rate": (0, 3.5, 5.1, 6.2, 7.4, 14.0, 33.6, 43.7, 51.0, 52.3),
    "output rate": (0, 2.2, 4.7, 6.0, 6.9, 12.0, 29.1, 42.6, 47.3, 50.3),
    "width": (0, 3.4, 6.8, 7.2, 7.9, 8.1, 8.6, 9.3, 9.9, 11.5),
    "communication": (0, 25.3, 38.6, 46.3, 57.3, 62.3, 64.9, 72.2, 73.8, 75.5),
}


def measure(folder: Path | None, *, quick: bool) -> None:
    """Measure claim by claim, print the tables, and write them to a folder if there is one."""
    found: list[Curves] = []
    runs = 1 if quick else RUNS
    for part in (partial(effect, SIZES[::3] if quick else SIZES), distributed, model, output_size):
        begun = time.perf_counter()
        for curves in part(runs):
            found.append(curves)
            say(curves.markdown())
        say(f"{time.perf_counter() - begun:.0f} s\n")
        if folder is not None:
            write(folder, found, runs)


def write(folder: Path, found: Sequence[Curves], runs: int) -> None:
    """The page ``network.md`` and its pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    head = (
        "# Sensor network: figures\n\nWritten by `python -m benchmarks.network --only claims --plots FOLDER`: means of "
        f"{runs} seeds with 95 % intervals. Fields are the paper's synthetic ones, the first 20 seconds, window 10 s, "
        "clusters by HEED. Recall is the share of all matching pairs of readings that is found. Verdicts are in "
        "the page on reproduction.\n"
    )
    (folder / "network.md").write_text(
        "\n".join([head, *(curves.markdown(curves.draw(folder)) for curves in found)]), encoding="utf-8"
    )


# --- S6: the effect of feedback (Fig. 12) -----------------------------------------------------------------------------


def measures(run: Outcome, one: Case) -> dict[str, float]:
    """What Fig. 12 measures, and recall. Output is counted in matching pairs: a few products outweigh all others."""
    taken = len(one.observations.time) - len(run.shed)
    return {
        "probes": run.traffic.messages["probes"] / taken,
        "delay": float(run.delay.mean()),
        "drop rate": len(run.shed) / len(one.observations.time),
        "output rate": float(len(run.answers.time)),
        "width": 1.0 + float(run.answers.arity.mean()),
        "communication": run.traffic.between_heads / taken,
        "recall": one.recall(run),
    }


def effect(sizes: Sequence[int], runs: int) -> list[Curves]:
    """S6: per cent less than full probing, of all of Fig. 12, recall beside it; heads as busy as the paper's."""
    names = ("full", "feedback", "feedback as printed", "filters")
    less: dict[str, dict[str, list[Estimate]]] = {measure: {} for measure in PRINTED}
    recall: dict[str, list[Estimate]] = {}
    drops: dict[str, list[Estimate]] = {}
    for size in sizes:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        quiet: list[float] = []
        for seed in range(1, runs + 1):
            one = case(size, seed)
            made = policies(len(one.clusters), seed)
            for name in names:
                found[name].append(measures(one.run(made[name](), Settings(seed=seed, capacity=CAPACITY)), one))
            quiet.append(one.recall(one.run(made["feedback"](), Settings(seed=seed))))
        for name in names:
            recall.setdefault(name, []).append(estimate([each["recall"] for each in found[name]]))
            drops.setdefault(name, []).append(estimate([100 * each["drop rate"] for each in found[name]]))
        recall.setdefault("feedback, heads idle", []).append(estimate(quiet))
        for name, lines in less.items():
            lines.setdefault("paper", []).append(Estimate(PRINTED[name][SIZES.index(size)], 0.0))
            for way in names[1:]:
                pairs = zip(found[way], found["full"], strict=True)
                reduced = [100 * (1 - a[name] / b[name]) if b[name] else 0.0 for a, b in pairs]
                lines.setdefault(way, []).append(estimate(reduced))
    places = tuple(sizes)
    each = {"probes": "probes a reading", "communication": "bytes a reading"}
    titles = {name: f"S6, Fig. 12: {each.get(name, name)}, less than with full probing" for name in less}
    curves = [
        Curves(f"s6_{name.replace(' ', '_')}", titles[name], "sensors", "per cent less", places, lines)
        for name, lines in less.items()
    ]
    curves.append(Curves("s6_recall", "S6: recall", "sensors", "share of matching pairs found", places, recall))
    return [*curves, Curves("s6_drops", "S6: readings shed", "sensors", "per cent of readings", places, drops)]


# --- S5, S7: against distributed MJoin (Fig. 11) ----------------------------------------------------------------------


def distributed(runs: int) -> list[Curves]:
    """S5 and S7: updates of phenomena a second, and delay, with heads that are as busy."""
    sizes = (400, 1200, 2000)
    units = {
        "updates": ("updates of phenomena", "updates a second"),
        "right": ("updates that are right", "updates a second"),
        "delay": ("output delay", "seconds"),
        "recall": ("recall", "share of matching pairs found"),
    }
    lines: dict[str, dict[str, list[Estimate]]] = {line: {} for line in units}
    ratio = work_of_mjoin()
    for size in sizes:
        found: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(1, runs + 1):
            one = case(size, seed)
            for name, run in contestants(one, seed, ratio).items():
                rate, right = updates(run.answers, one)
                found.setdefault(name, []).append((rate, right, run.delay.mean() / 1e6, one.recall(run)))
            found.setdefault("one head for all", []).append((*updates(one.reference, one), 0.0, 1.0))
        for name, values in found.items():
            for line, column in zip(lines, zip(*values, strict=True), strict=True):
                lines[line].setdefault(name, []).append(estimate(column))
    places = tuple(sizes)
    return [
        Curves(f"s5_{line}", f"S5, S7: {units[line][0]}", "sensors", units[line][1], places, lines[line])
        for line in lines
    ]


def contestants(one: Case, seed: int, ratio: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> dict[str, Outcome]:
    """Distributed MJoin, which pads its rows and pays for every stream of a cluster, and the ways of the SNJoin."""
    settings, made = Settings(seed=seed, capacity=CAPACITY), policies(len(one.clusters), seed)
    streams = np.bincount(one.clusters.of)
    order = by_selectivity(one.run(settings=Settings(seed=seed)), one.clusters)
    busy = replace(settings, work=tuple(ratio(streams).tolist()), order=order, sizes=Sizes(null=1))
    return {"distributed MJoin": one.run(settings=busy)} | {
        name: one.run(made[name](), settings) for name in ("full", "feedback", "filters")
    }


def by_selectivity(run: Outcome, clusters: Clusters) -> NDArray[np.int64]:
    """The order in which distributed MJoin asks: heads where most was found first."""
    found = np.bincount(clusters.of[run.answers.sensor], minlength=len(clusters))
    best = np.argsort(-found, kind="stable")
    return np.array([best[best != head] for head in range(len(clusters))])


def work_of_mjoin() -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Time of a reading in an MJoin of so many streams / in the one structure of ours, a line through some sizes."""
    sizes, ratios = np.array([10, 20, 40, 80, 160]), []
    for size in sizes.tolist():
        field = fields.synthetic(size, 160_000 // size, 1)
        ratios.append(mjoin_cost(field, field.bins()) / our_cost(field, field.bins()))
    slope, base = np.polyfit(sizes, ratios, 1)
    told = ", ".join(f"{ratio:.2f} at {size}" for size, ratio in zip(sizes.tolist(), ratios, strict=True))
    say(f"time of MJoin / ours: {told} streams")
    return lambda streams: np.maximum(base + slope * streams, 0.1)


def mjoin_cost(field: fields.Readings, bins: NDArray[np.int64]) -> float:
    """Microseconds a reading in MJoin, once windows are full."""
    join = MJoin(field.sensors, fields.WINDOW)
    return _microseconds(lambda part: join.push(field.time[part], field.sensor[part], bins[part]), len(field))


def our_cost(field: fields.Readings, bins: NDArray[np.int64]) -> float:
    """Microseconds a reading in the operator that the heads run."""
    some = Observations(field.sensor, field.time, bins, np.full(len(field), fields.WINDOW))
    store = Store(some, np.arange(field.sensors), fields.WINDOW)
    join = SensorJoin(SensorPlan(fields.WINDOW, pa.int64()))
    numbers, head = np.arange(len(field)), np.zeros(len(field), np.int64)
    batches = {part.start: store.readings(numbers[part], head[part]) for part in _parts(len(field))}
    return _microseconds(lambda part: join.push([batches[part.start]]), len(field))


def _parts(n: int) -> list[slice]:
    """A stream in batches."""
    bounds = np.linspace(0, n, 9).astype(int).tolist()
    return [slice(*ends) for ends in pairwise(bounds)]


def _microseconds(push: Callable[[slice], Any], n: int) -> float:
    """Of the second half of a stream: the least of its batches, as the others were disturbed."""
    costs = []
    for part in _parts(n):
        begun = time.process_time()
        push(part)
        costs.append((time.process_time() - begun) / (part.stop - part.start))
    return 1e6 * float(min(costs[len(costs) // 2 :]))


# --- S8: the cost model (Figs. 7, 13, 14) -----------------------------------------------------------------------------


def model(runs: int) -> list[Curves]:
    """S8: C1 to C5, selectivities and k' measured again on the board, and the model against measured cost."""
    found = [[board_load(k, seed) for seed in range(1, runs + 1)] for k in BOARD]
    loads = [mean_load([load for load, _ in some]) for some in found]
    of_mjoin, of_ours = np.array([np.mean([both for _, both in some], axis=0) for some in found]).T
    matches = [(load.k - 1) * load.sigma * load.n for load in loads]
    rows = [
        [1, load.k - 1, (load.k - 1) * load.distinct / BUCKETS, 0, m] for load, m in zip(loads, matches, strict=True)
    ] + [
        [1, 0, load.distinct_all / load.buckets, load.k * load.sigma * load.n, m]
        for load, m in zip(loads, matches, strict=True)
    ]
    # Relative errors count, so that cheap and dear places weigh the same.
    measured = np.concatenate([of_mjoin, of_ours])
    constants, _ = nnls(np.array(rows) / measured[:, None], np.ones(len(measured)))
    fitted = np.array(rows) @ constants
    places = BOARD
    say(f"C1..C5 in nanoseconds: {np.round(1e3 * constants, 1).tolist()}, printed 26.25, 6.93, 0.24, 2.72, 5.7")
    say(f"largest error of the model: {100 * np.abs(fitted / measured - 1).max():.0f} %")
    return [
        Curves("s8_load", "S8, Fig. 13: the board again", "sensors", "as named", places, _loads(loads)),
        Curves(
            "s8_cost",
            "S8, Fig. 14: measured cost and the model, factorised output",
            "sensors",
            "microseconds a reading",
            places,
            {
                "MJoin measured": _exact(of_mjoin),
                "MJoin model": _exact(fitted[: len(BOARD)]),
                "ours measured": _exact(of_ours),
                "ours model": _exact(fitted[len(BOARD) :]),
            },
        ),
        Curves(
            "s8_saving",
            "S8, Fig. 7: per cent that the SNJoin saves against MJoin",
            "sensors",
            "per cent",
            places,
            {
                "paper's model and constants": _exact(
                    [100 * (1 - cost.snjoin(load) / cost.outer_mjoin(load)) for load in cost.PAPER]
                ),
                "paper's model, our board": _exact(
                    [100 * (1 - cost.snjoin(load) / cost.outer_mjoin(load)) for load in loads]
                ),
                "measured, factorised": _exact(100 * (1 - of_ours / of_mjoin)),
            },
        ),
    ]


def mean_load(loads: Sequence[cost.Load]) -> cost.Load:
    """The mean of what was measured."""
    names = ("sigma", "distinct_all", "n", "distinct", "buckets", "local")
    return cost.Load(loads[0].k, *(float(np.mean([getattr(load, name) for load in loads])) for name in names))


def board_load(k: int, seed: int) -> tuple[cost.Load, tuple[float, float]]:
    """The first k sensors of Figure 8's board: what is joined, and microseconds a reading in MJoin and in ours."""
    whole = fields.board(seed, 50.0)
    kept = whole.sensor < k
    field = fields.Readings(k, whole.sensor[kept], whole.time[kept], whole.value[kept])
    bins = field.bins(0.01)
    some = Observations(field.sensor, field.time, bins, np.full(len(field), fields.WINDOW))
    one = centralised(some, Clusters(Topology(np.zeros((k, 2))), np.zeros(k, np.int64), np.zeros(1, np.int64)))
    full = field.time[one.probe] >= fields.WINDOW
    n = int((field.time >= fields.WINDOW).sum())
    times = np.add.reduceat(np.diff(one.begin), one.first[:-1])
    live = (field.time >= fields.WINDOW) & (field.time < 2 * fields.WINDOW)
    distinct = [len(np.unique(bins[live & (field.sensor == sensor)])) for sensor in range(k)]
    load = cost.Load(
        k,
        float(times[full].sum() / n / (k - 1) / 1000),
        float(len(np.unique(bins[live]))),
        distinct=float(np.mean(distinct)),
        local=float(one.arity[full].sum() / n / (k - 1)),
    )
    return load, (mjoin_cost(field, bins), our_cost(field, bins))


def _loads(loads: Sequence[cost.Load]) -> dict[str, list[Estimate]]:
    """What was measured of the board, beside what the paper prints."""
    columns: dict[str, Callable[[cost.Load], float]] = {
        "sigma": lambda load: load.sigma,
        "distinct1": lambda load: load.distinct,
        "distinct2": lambda load: load.distinct_all,
        "k'": lambda load: load.local,
    }
    return {
        f"{name}{of}": _exact([get(load) for load in some])
        for name, get in columns.items()
        for of, some in (("", loads), (", printed", cost.PAPER))
    }


def _exact(values: Sequence[float] | NDArray[np.float64]) -> list[Estimate]:
    return [Estimate(float(value), 0.0) for value in values]


def output_size(runs: int) -> list[Curves]:
    """The distributed size formula, by means, against the sizes that were: a row of sensors is a cluster."""
    lines: dict[str, list[Estimate]] = {}
    for k in BOARD:
        found: dict[str, list[float]] = {}
        for seed in range(1, runs + 1):
            whole = fields.board(seed, 14.0)
            kept = whole.sensor < k
            sensor, moment = whole.sensor[kept], whole.time[kept]
            bins = np.floor(whole.value[kept] / 0.01).astype(np.int64)
            some = Observations(sensor, moment, bins, np.full(len(moment), fields.WINDOW))
            positions = np.column_stack([np.arange(k) % 5, np.arange(k) // 5]).astype(np.float64)
            clusters = Clusters(Topology(positions, 1.0), np.arange(k) // 5, np.arange(0, k, 5))
            run = simulate(some, clusters)
            same(run.answers, centralised(some, clusters))
            for name, value in sizes_of(run, some, clusters).items():
                found.setdefault(name, []).append(value)
        for name, values in found.items():
            lines.setdefault(name, []).append(estimate(values))
    places = BOARD
    title = "S8: size of an answer, by the formula and as it was"
    return [Curves("s8_size", title, "sensors", "bytes an answer", places, lines, log=True)]


def sizes_of(run: Outcome, some: Observations, clusters: Clusters) -> dict[str, float]:
    """Bytes an answer, 8 a column: by the formula from means, the products that were, factorised as it was sent."""
    answers, warm = run.answers, some.time[run.answers.probe] >= fields.WINDOW
    counts = np.diff(answers.begin)
    of_answer = np.repeat(np.arange(len(answers.probe)), answers.arity)
    cluster, n = clusters.of[answers.sensor], max(int(warm.sum()), 1)
    taken = warm[of_answer]
    streams = np.bincount(clusters.of).astype(np.float64)
    groups = np.bincount(cluster[taken], minlength=len(clusters)) / n
    times = np.bincount(cluster[taken], counts[taken], minlength=len(clusters)) / n
    # Streams with a match, each with the mean of its readings that match.
    each = np.divide(times, groups, out=np.ones_like(times), where=groups > 0)
    by_formula = cost.distributed_size(
        streams.tolist(), (groups / streams).tolist(), [np.array([e**g]) for e, g in zip(each, groups, strict=True)]
    )
    flat = (2.0 * answers.arity * answers.elements)[warm]
    factors = np.add.reduceat(counts, answers.first[:-1])[warm]
    return {
        "formula": 8 * by_formula,
        "product, mean": float(8 * flat.mean()),
        "product, median": float(8 * np.median(flat)),
        "factorised": float((8 * factors + 6 * answers.arity[warm]).mean()),
    }
