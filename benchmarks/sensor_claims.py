"""The claims S1 to S4 of Ali et al. 2007 on one machine, measured: tables, and pictures of them; S9 as a table.

Contestants share a CPU that is a fixed share of one core: what ours needs at 20 sensors of the board, at 2,000 of the
synthetic field. Costs are CPU seconds of each join on the readings it takes in, by the batch; a queue by events tells
delays: readings come at their times and take their cost one by one, as if none waited for a batch. Whoever is too slow
sheds readings at random, until the CPU is busy for 95 % of the time. All give the same factorised answers, which is
checked; nothing but the joins is charged. An *update* of phenomena is an answer whose sensors are not those of the last
answer of its value; it is right if they are what they would be had nothing been shed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import sensor_fields as fields
from benchmarks.harness import say
from benchmarks.mjoin import MJoin
from benchmarks.sensor_changes import changing
from benchmarks.sensor_laps import CONTESTANTS, LAPS, START, Given, Lap, lap, updates
from benchmarks.sensor_uses import features, guided
from benchmarks.tables import Curves, Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

BUSY = 0.95
ROUNDS = 3  # in which the share of readings taken in settles
SECONDS = 20.0  # measured
BOARD, SIZES = (5, 10, 15, 20, 25), (200, 500, 1000, 2000)
MEASURES = {
    "cost": ("cost with nothing shed", "microseconds a reading"),
    "idle": ("output delay with CPU to spare", "microseconds on a whole core"),
    "delay": ("output delay on the limited CPU", "milliseconds"),
    "drops": ("drop rate", "per cent of readings"),
    "output": ("output rate", "matching pairs a second"),
    "updates": ("updates of phenomena", "updates a second"),
    "right": ("updates that are right", "updates a second"),
}
# Ours / theirs.
PRINTED = {
    "S1": {"HMJ tree": {"delay": 0.64, "updates": 1.75}, "MJoin": {"delay": 0.81, "updates": 1.43}},
    "S3": {"HMJ tree": {"output": 2.0, "updates": 2.8}, "MJoin": {"output": 1.6, "updates": 1.85}},
}


def agree(laps: dict[str, Lap]) -> None:
    """Raise unless all met as many readings of the same sensors."""
    for name, one in laps.items():
        if not (np.array_equal(one.met, laps["ours"].met) and np.array_equal(one.sets, laps["ours"].sets)):
            raise RuntimeError(f"{name} tells other answers than ours")


def delay(times: Ints, seconds: float) -> float:
    """Mean seconds from arrival to output of a queue of one server, each reading taking as long (Lindley 1952)."""
    at = times / fields.SECOND
    done = seconds * np.arange(1, len(at) + 1)
    return float((done + np.maximum.accumulate(at - (done - seconds)) - at).mean())


def measured(given: Given, whole: dict[str, Lap], limit: float) -> dict[str, dict[str, float]]:
    """All of `MEASURES` of each contestant, on so much of a core; they settle by turns."""
    laps, share = dict(whole), dict.fromkeys(CONTESTANTS, 1.0)
    for _ in range(ROUNDS):
        for name, one in laps.items():
            fits = BUSY * limit / (given.rate * one.cost)
            share[name] = min(1.0, fits if one is whole[name] else float(np.sqrt(share[name] * fits)))
        busy = {name: given.thinned(part) for name, part in share.items() if part < 1}
        laps |= timed_laps(given, busy)
    return {name: _told(given, laps[name], whole, name, limit) for name in CONTESTANTS}


def timed_laps(given: Given, kept: dict[str, Ints]) -> dict[str, Lap]:
    """A lap of each contestant with the readings that it takes in, its costs the medians of several; by turns.

    Costs are over those of a yardstick in the same turn: a machine that others use is twice as fast at times.
    """
    found: dict[str, list[Lap]] = {name: [] for name in kept}
    for _ in range(LAPS):
        slower = pace() / usual_pace()
        for name, mine in kept.items():
            one = lap(CONTESTANTS[name](given.field.sensors, given.kinds), given, mine)
            found[name].append(replace(one, costs=one.costs / slower))
    return {
        name: replace(laps[0], costs=np.median([one.costs for one in laps], axis=0)) for name, laps in found.items()
    }


def pace() -> float:
    """CPU seconds of a yardstick: some readings of the board through MJoin."""
    given = _yardstick()
    mine, join = slice(0, 10_000), MJoin(20, fields.WINDOW)
    begun = time.thread_time()
    join.push(given.field.time[mine], given.field.sensor[mine], given.bins[mine])
    return time.thread_time() - begun


@cache
def usual_pace() -> float:
    """The yardstick at first."""
    pace()
    return float(np.median([pace() for _ in range(9)]))


@cache
def _yardstick() -> Given:
    return board(20, 1)


def _told(given: Given, one: Lap, whole: dict[str, Lap], name: str, limit: float) -> dict[str, float]:
    late = given.field.time[one.kept] >= START
    all_late = given.field.time[given.field.time >= START]
    seconds = float(np.ptp(all_late)) / fields.SECOND
    # The share has settled nearly, not quite: more than busy would have no end.
    service = min(one.cost / limit, BUSY * seconds / max(int(late.sum()), 1))
    every, right = updates(given, one, whole["ours"])
    return {
        "cost": 1e6 * whole[name].cost,
        "idle": 1e6 * delay(all_late, whole[name].cost),
        "delay": 1e3 * delay(given.field.time[one.kept][late], service),
        "drops": 100 * (1 - len(one.kept) / len(given.field)),
        "output": float(one.met[late].sum()) / seconds,
        "updates": every / seconds,
        "right": right / seconds,
    }


def compare(
    claim: str, title: str, make: Callable[[int, int], Given], sizes: Sequence[int], at: int, runs: int
) -> list[Curves]:
    """All measures by number of sensors, and ours against the others at one number; the CPU is what ours needs there.

    The number must be one of ``sizes``.
    """
    found: dict[int, list[dict[str, dict[str, float]]]] = {size: [] for size in sizes}
    for seed in range(1, runs + 1):
        given = {size: make(size, seed) for size in sizes}
        whole = {size: _undisturbed(some) for size, some in given.items()}
        limit = given[at].rate * whole[at]["ours"].cost / BUSY
        say(f"{claim}, seed {seed}: {100 * limit:.3f} % of a core")
        for size, some in given.items():
            found[size].append(measured(some, whole[size], limit))
    places = tuple(sizes)
    curves = [
        Curves(
            f"{claim.lower()}_{measure}",
            f"{claim}, {title}: {what}",
            "sensors",
            unit,
            places,
            {name: [estimate([run[name][measure] for run in found[size]]) for size in sizes] for name in CONTESTANTS},
        )
        for measure, (what, unit) in MEASURES.items()
    ]
    return [*curves, _against(claim, title, found[at], at)]


def _undisturbed(given: Given) -> dict[str, Lap]:
    """All readings through each contestant."""
    found = timed_laps(given, dict.fromkeys(CONTESTANTS, given.thinned(1.0)))
    agree(found)
    return found


def _against(claim: str, title: str, runs: Sequence[dict[str, dict[str, float]]], at: int) -> Curves:
    """Ours over each other contestant, and what the paper says."""
    told = ("idle", "delay", "output", "updates", "right")
    lines: dict[str, list[Estimate]] = {}
    for name, said in PRINTED[claim].items():
        ratios = [[run["ours"][m] / run[name][m] if run[name][m] else np.inf for run in runs] for m in told]
        lines[f"against {name}"] = [estimate(some) for some in ratios]
        lines[f"against {name}, paper"] = [Estimate(said.get(m, np.nan), 0.0) for m in told]
    names = tuple(MEASURES[measure][0] for measure in told)
    title = f"{claim}, {title}: ours against the others at {at:,} sensors"
    return Curves(f"{claim.lower()}_against", title, "measure", "ours / theirs", names, lines)


def board(sensors: int, seed: int) -> Given:
    """The first sensors of Figure 8's board."""
    whole = fields.board(seed, START / fields.SECOND + SECONDS)
    kept = whole.sensor < sensors
    return Given.of(fields.Readings(sensors, whole.sensor[kept], whole.time[kept], whole.value[kept]), 0.01)


def synthetic(sensors: int, seed: int) -> Given:
    """Figure 9's field: as many readings of few sensors as of many."""
    seconds = START / fields.SECOND + SECONDS * max(1.0, 1000 / sensors)
    return Given.of(fields.synthetic(sensors, int(1.3 * seconds) + 30, seed).until(seconds))


# --- all of it --------------------------------------------------------------------------------------------------------


def measure(folder: Path | None, *, quick: bool) -> None:
    """Measure claim by claim, print the tables, and write them to a folder if there is one."""
    runs, begun = (1 if quick else 5), time.perf_counter()
    parts: list[str] = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    timed_laps(board(5, 1), dict.fromkeys(CONTESTANTS, np.arange(1000)))  # compiles
    small, large = ((5, 20, 25), (200, 2000)) if quick else (BOARD, SIZES)
    for some in (
        partial(compare, "S1", "Fig. 8, the board", board, small, 20),
        partial(compare, "S3", "Fig. 9, synthetic", synthetic, large, 2000),
        changing,
        guided,
    ):
        for curves in some(runs):
            say(shown(curves))
            drawn = folder is not None and not isinstance(curves.x[0], str)
            parts.append(shown(curves, curves.draw(folder) if folder is not None and drawn else None))
        say(f"{time.perf_counter() - begun:.0f} s\n")
    if folder is not None:
        (folder / "sensor_join.md").write_text("\n".join([HEAD.format(runs), *parts, features()]), encoding="utf-8")


def shown(curves: Curves, picture: str | None = None) -> str:
    """As markdown; a dash where the paper says nothing."""
    return curves.markdown(picture).replace("| nan ", "| — ")


HEAD = (
    "# Sensor joins: figures\n\nWritten by `python -m benchmarks.sensor_join --only claims --plots FOLDER`: means of "
    "{} seeds with 95 % intervals, contestants by turns, on a machine that others were using. "
    + " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    + " Verdicts are in the page on reproduction.\n"
)
