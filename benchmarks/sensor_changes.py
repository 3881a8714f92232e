"""Claim S4 of Ali et al. 2007: what is lost to rebuilding where sensors come and go (Fig. 10)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import sensor_fields as fields
from benchmarks.harness import say
from benchmarks.mjoin import BUCKETS
from benchmarks.sensor_laps import CONTESTANTS, LAPS, Given, answers, lap, updates
from benchmarks.sensor_ours import Ours
from benchmarks.tables import Curves, Estimate, estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

CHANGING, MINUTES = 400, 4
FALLS = {"HMJ tree": 80.0, "MJoin": 50.0, "ours": 20.0}  # as printed, per cent


@dataclass(frozen=True)
class Minutes:
    """CPU seconds of the readings of all minutes but the first, and those of one rebuilding in each of them."""

    work: float
    rebuilding: float
    met: Ints


def minutes(name: str, given: Given) -> Minutes:
    """What a contestant pays for the readings, and for a change of the streams."""
    field, ours, met = given.field, Ours(fields.WINDOW), []
    work = rebuilding = 0.0
    for minute in range(MINUTES):
        edges = np.array([60 * minute - 10, 60 * minute, 60 * (minute + 1)]) * fields.SECOND
        window, begin, end = np.searchsorted(field.time, edges)
        streams, sensor = np.unique(field.sensor[window:end], return_inverse=True)
        contestant: Any = ours if name == "ours" else CONTESTANTS[name](len(streams), given.kinds)
        held = field.time[window:begin], sensor[: begin - window], given.bins[window:begin]
        once = rebuilt(name, contestant, held, len(streams))
        fresh = field.sensor[begin:end] if name == "ours" else sensor[begin - window :]
        begun = time.thread_time()
        found = contestant.push(field.time[begin:end], fresh, given.bins[begin:end])
        if minute:
            work, rebuilding = work + time.thread_time() - begun, rebuilding + once
        met.append(answers(contestant, found, fresh)[0])
    return Minutes(work, rebuilding, np.concatenate(met))


def rebuilt(name: str, contestant: Any, held: tuple[Ints, Ints, Ints], streams: int) -> float:
    """CPU seconds of a change of the streams, after which a contestant has what the windows hold.

    A tree is made anew and takes that in again. Tables of MJoin are copied with one less. Ours goes on.
    """
    table = np.full((streams, BUCKETS), -1, np.int32)
    begun = time.thread_time()
    np.delete(table, streams // 2, axis=0)
    copied = time.thread_time()
    if name != "ours":
        contestant.push(*held)
    return {"HMJ tree": time.thread_time() - copied, "MJoin": copied - begun, "ours": 0.0}[name]


def changing(runs: int) -> list[Curves]:
    """S4: per cent lost to rebuilding, each contestant on the CPU that its readings need."""
    lines: dict[str, dict[str, list[float]]] = {name: {} for name in CONTESTANTS}
    for seed in range(1, runs + 1):
        readings, changes = fields.coming_and_going(CHANGING, MINUTES, seed)
        given = Given.of(readings)
        say(f"S4, seed {seed}: {len(changes)} changes; {_by_itself(given, seed):.1f} % fewer updates a reading by them")
        laps: dict[str, list[Minutes]] = {name: [] for name in CONTESTANTS}
        for name in [*CONTESTANTS] * LAPS:
            laps[name].append(minutes(name, given))
            if not np.array_equal(laps[name][-1].met, laps["HMJ tree"][0].met):
                raise RuntimeError(f"{name} tells other answers while sensors come and go")
        whole = lap(Ours(fields.WINDOW), given, given.thinned(1.0))
        every = updates(given, whole, whole)[0]
        for name, some in laps.items():
            work = float(np.median([one.work for one in some]))
            once = float(np.median([one.rebuilding for one in some]))
            for manner, times in (("a minute's together", 1.0), ("one by one", len(changes) / (MINUTES - 1))):
                share = kept_share(name, work, once * times)
                kept = whole if share == 1 else lap(Ours(fields.WINDOW), given, given.thinned(share))
                few, right = updates(given, kept, whole)
                told = {"readings shed": 1 - share, "updates": 1 - few / every, "right updates": 1 - right / every}
                for measure, lost in told.items():
                    lines[name].setdefault(f"{measure}, {manner}", []).append(100 * lost)
    names = tuple(lines["ours"])
    table: dict[str, list[Estimate]] = {}
    for name, lost_of in lines.items():
        table[name] = [estimate(lost_of[measure]) for measure in names]
        table[f"{name}, paper"] = [Estimate(FALLS[name] if m.startswith("updates") else np.nan, 0.0) for m in names]
    title = "S4, Fig. 10: what is lost when 1 to 100 sensors come or go each minute"
    return [Curves("s4_fall", title, "measure", "per cent", names, table)]


def _by_itself(given: Given, seed: int) -> float:
    """Per cent fewer updates a reading than where the sensors of the first minute stay."""
    whole = fields.synthetic(CHANGING, 72 * MINUTES + 20, seed).until(60.0 * MINUTES)
    stay = whole.sensor < CHANGING // 2
    still = Given.of(fields.Readings(CHANGING, whole.sensor[stay], whole.time[stay], whole.value[stay]))
    rates = []
    for some in (given, still):
        one = lap(Ours(fields.WINDOW), some, some.thinned(1.0))
        rates.append(updates(some, one, one)[0] / len(some.field))
    return 100 * (1 - rates[0] / rates[1])


def kept_share(name: str, work: float, rebuilding: float) -> float:
    """The share of readings for which there is time, besides rebuilding, in the time that ``work`` takes.

    A tree takes in again what windows hold, less with fewer readings; tables are as large whatever they hold.
    """
    return work / (work + rebuilding) if name == "HMJ tree" else max(0.0, 1 - rebuilding / work)
