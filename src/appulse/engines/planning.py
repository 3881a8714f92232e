"""What a call will need, estimated from a trial of it over some of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from html import escape
from math import ceil, exp, lgamma, log
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.model.sizes import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from appulse.kernels.arrays import Floats

__all__ = ["Growth", "Plan", "Step", "Stretch", "Trial", "estimate", "most_answers"]

#: Of the cores, what a job may use: the rest is for bursts.
_LOAD = 0.8
#: From how many times the rows that were held in a trial on its costs are guesses.
_FAR = 100
#: Costs rise with what is held where so many steps say so, by as many standard errors.
_FEWEST, _SURE = 4, 3.0
#: Bytes of memory beside the state: of the process, of each core's worker, and how often the state is there while it
#: is worked on. Rules of thumb, on the safe side; what a job really takes depends on its session.
_FIXED = {"process": 250e6, "spark": 1_100e6}
_EACH_CORE = {"process": 0.0, "spark": 300e6}
_COPIES = {"process": 2.0, "spark": 3.0}
ENGINES = tuple(_FIXED)
#: In how many tiles of Spark a row is, on the mean.
_TILES = 1.4


@dataclass(frozen=True)
class Step:
    """One push of a trial: how many rows of each stream came, what is held after it, and what came of it."""

    rows: tuple[int, ...]
    state_rows: int
    state_bytes: int
    answers: int
    own: int  # of them those between rows of one key
    seconds: float  # of one core


@dataclass(frozen=True)
class Growth:
    """How figures of a call grow with its rows.

    ``answers`` is the power by which answers grow with the rate of all streams, ``rows`` the same of rows held.
    ``thinned`` says what of the answers is left where a share of the keys is taken: 2 for pairs of keys, 1 for what
    each key does by itself; 0: the call cannot be tried on some keys. ``nearest`` is the number of partners a row of
    the first stream has at most, 0 where that is not limited. ``fixed``: what is held is not the rows.
    """

    answers: int = 1
    rows: int = 1
    thinned: int = 0
    nearest: int = 0
    fixed: bool = False
    tiled: bool = False  # on Spark, where rows near a border are in several tiles


@dataclass(frozen=True)
class Stretch:
    """Steps over a stretch of the streams, and what the streams have in its later part, where things are steady.

    The first ``skipped`` steps are before that. ``share`` is what of each stream's rows the steps have, ``rates`` are
    rows a second of each stream.
    """

    steps: Sequence[Step]
    seconds: float
    share: tuple[float, ...]
    rates: tuple[float, ...]
    skipped: int

    @property
    def later(self) -> Sequence[Step]:
        """The steps of the later part."""
        return self.steps[self.skipped :]

    def kept(self, stream: int) -> int:
        """Rows of a stream in the later part."""
        return sum(step.rows[stream] for step in self.later)


@dataclass(frozen=True)
class Trial:
    """What was tried: the busiest stretch of the streams, and some others.

    ``typical`` are rows a second of the whole, by stretch (rows) and stream (columns): of ``bins`` stretches those
    that have any. ``stays`` is for how many seconds rows are held, where windows say so; the ``fullest`` stretch ends
    when most come within that. ``behind`` is a busiest stretch with streams that wait as on Spark, where that is
    longer; ``rows`` are those of all streams.
    """

    busiest: Stretch
    others: Sequence[Stretch]
    typical: Floats
    bins: int
    stays: float | None
    steady: bool
    fullest: Stretch | None = None
    behind: Stretch | None = None
    rows: int = 0

    @property
    def usual(self) -> Floats:
        """Rows a second of each stream, on the whole."""
        return np.asarray(self.typical.sum(axis=0) / self.bins)


@dataclass(frozen=True)
class Plan:
    """What a call needs, and whether it fits. ``str()`` returns it as a table.

    ``rate`` is the rows per second of all streams, ``peak_rate`` that of the busiest stretch. ``state_rows`` and
    ``state_bytes`` are held at the peak. ``answers_per_second`` and ``peak_answers_per_second`` belong to these rates.
    ``rows_per_core`` is the rows per second that one core processes, ``cores`` the cores that the peak needs,
    ``memory`` the bytes of the whole process. ``notes`` has the assumptions, ``refusals`` what does not fit.

    >>> rows = pa.table({"id": range(2000), "t": range(2000), "x": [i / 7 for i in range(2000)]})
    >>> join = ap.SimilarityJoin(ap.Stream(None, key="id", time="t", value="x"), epsilon=1, probability=1, window=60)
    >>> needs = ap.plan(join, rows)
    >>> needs.call, needs.state_rows > 0
    ('SimilarityJoin', True)
    """

    call: str
    engine: str
    rate: float
    peak_rate: float
    state_rows: int
    state_bytes: int
    answers_per_second: float
    peak_answers_per_second: float
    rows_per_core: float
    cores: int
    memory: int
    sample_rows: int
    steady: bool
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = field(default=())

    @property
    def fits(self) -> bool:
        """Whether nothing that was declared is exceeded."""
        return not self.refusals

    def refused(self, why: str) -> Plan:
        """The same plan with another reason that it does not fit."""
        return replace(self, refusals=(*self.refusals, why))

    def named(self, call: str) -> Plan:
        """The same plan of a call by another name."""
        return replace(self, call=call)

    def as_dict(self) -> dict[str, Any]:
        """All there is to say, for JSON."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return found | {"notes": list(self.notes), "refusals": list(self.refusals), "fits": self.fits}

    def lines(self) -> Iterator[tuple[str, str]]:
        """What each line of the table is about, and says."""
        peak = f", {_number(self.peak_rate)} where most come" if self.peak_rate > 1.05 * self.rate else ""
        yield "rows a second", f"{_number(self.rate)}{peak}"
        yield "rows held", f"{self.state_rows:,}"
        yield "state", size(self.state_bytes)
        peak = f", {_number(self.peak_answers_per_second)} where most come"
        more = self.peak_answers_per_second > 1.05 * self.answers_per_second
        yield "answers a second", f"{_number(self.answers_per_second)}{peak if more else ''}"
        yield "rows a second and core", f"{_number(self.rows_per_core)}"
        yield "cores", f"{self.cores}"
        yield "memory", size(self.memory)
        yield "tried on", f"{self.sample_rows:,} rows"

    def __str__(self) -> str:
        lines = [(what, text) for what, text in self.lines()]
        wide = max(len(what) for what, _ in lines)
        found = [f"{self.call} ({'on Spark' if self.engine == 'spark' else 'in process'})"]
        found += [f"  {what:<{wide}}  {text}" for what, text in lines]
        found += [f"  note: {note}" for note in self.notes]
        return "\n".join([*found, *(f"  does not fit: {why}" for why in self.refusals)])

    def _repr_html_(self) -> str:
        lines = [
            *self.lines(),
            *(("note", one) for one in self.notes),
            *(("does not fit", one) for one in self.refusals),
        ]
        rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(text)}</td></tr>" for what, text in lines)
        return f"<table><caption>{escape(self.call)}</caption>{rows}</table>"


def estimate(
    call: str,
    engine: str,
    trial: Trial,
    growth: Growth,
    *,
    rates: Sequence[float] | None = None,
    memory: float | None = None,
    cores: int | None = None,
    speed: float = 1.0,
) -> Plan:
    """The plan of a call by its trial; ``rates`` are declared ones, rows a second of each stream.

    ``speed`` is how many seconds of the streams pass in one: rows and answers come faster, and no more are held.
    """
    busiest = trial.busiest
    behind = busiest if trial.behind is None else trial.behind
    here, usual = np.array(busiest.rates), trial.usual
    # How much more of each stream is declared than the sample has, on the whole.
    more = np.ones(len(here)) if rates is None else np.array(rates) / np.maximum(usual, 1e-12)
    longer = 1.0
    if not trial.steady and trial.stays is not None and growth.rows:
        longer = max(1.0, trial.stays / behind.seconds)
    drawn = longer
    if engine == "spark" and growth.tiled:
        longer *= _TILES
    there = np.array(behind.rates)
    faster = float((more * there).sum() / max(there.sum(), 1e-12)) ** growth.rows
    grown = faster * longer * _thinned(behind, growth)
    steps = [*behind.steps, *([] if trial.behind or not trial.fullest else trial.fullest.steps)]
    held = max(step.state_rows for step in steps) * grown
    state = max(step.state_bytes for step in steps) * grown
    if trial.behind is not None and rates is None and drawn == 1:  # there are no more than all
        most = max(trial.rows, max(step.state_rows for step in busiest.steps) * faster * _thinned(busiest, growth))
        held, state = min(held, most), state * min(1.0, most / max(held, 1.0))

    tried_on = (busiest, *trial.others)
    power = 1 if growth.nearest else growth.answers
    increase = float(more[0] if growth.nearest else _chances(more, power))
    if power > 1:  # rows of a single push met half of them, on the mean
        increase *= 2 * drawn - 1 if len(busiest.steps) == 1 else drawn
    peak = max(_made(one, growth, more) for one in tried_on) * increase
    made, chances = _by_row(tried_on, growth, more)
    each = float(made.sum()) / max(float(chances.sum()), 1e-300)
    usual_answers = each * float(_chances(trial.typical, power).sum()) / trial.bins * increase

    costs = tried_on if trial.behind is None else (*tried_on, trial.behind)
    timed = [step for one in costs for step in one.steps[1:] or one.steps]
    cost = _cost(timed)(held)
    rate, top = speed * float((more * usual).sum()), speed * float((more * np.maximum(here, usual)).sum())
    asked = max(1, ceil(top * cost / _LOAD))
    total = _FIXED[engine] + _EACH_CORE[engine] * asked + _COPIES[engine] * state
    return Plan(
        call,
        engine,
        rate,
        top,
        round(held),
        round(state),
        speed * usual_answers,
        speed * peak,
        1 / cost if cost else float("inf"),
        asked,
        round(total),
        sum(sum(step.rows) for one in tried_on for step in one.steps),
        trial.steady,
        (*_notes(trial, drawn, speed), *_guesses(max(step.state_rows for step in timed), held)),
        tuple(_refusals(asked, total, state, top, cost, memory, cores)),
    )


def _notes(trial: Trial, longer: float, speed: float) -> Iterator[str]:
    busiest = trial.busiest
    if speed != 1.0:
        yield f"rows are replayed at {_number(speed)} times their own speed"
    if any(share < 0.999 for share in busiest.share):
        yield f"tried on {min(busiest.share):.1%} of the keys, over {_number(busiest.seconds)} seconds of the streams"
    if longer > 1 and trial.stays is not None:
        yield (
            f"rows are held for {_number(trial.stays)} seconds, and the sample is of {_number(busiest.seconds)} "
            "seconds: what is held is drawn out to that"
        )
    elif not trial.steady:
        yield "what is held still grew at the end of the sample: take these figures as the least"


def _guesses(tried: int, held: float) -> Iterator[str]:
    """A note where costs are drawn out so far that what the clock happened to show decides them."""
    if held > _FAR * max(tried, 1):
        yield (
            f"at most {tried:,} rows were held when rows were timed, and {held:,.0f} will be: cores, and rows a second "
            "and core, are guesses. A sample as long as rows are held, at the rate to come, has better ones"
        )


def _refusals(
    asked: int, total: float, state: float, rate: float, cost: float, memory: float | None, cores: int | None
) -> Iterator[str]:
    if memory is not None and total > memory:
        yield f"it needs {size(total)} of memory, of which {size(state)} are state, and {size(memory)} are there"
    if cores is not None and asked > cores:
        yield (
            f"it needs {asked} cores for {_number(rate)} rows a second at {_number(1 / cost)} a core and {_LOAD:.0%} "
            f"load, and there {'is 1' if cores == 1 else f'are {cores}'}"
        )


def _thinned(stretch: Stretch, growth: Growth) -> float:
    """How many rows there are for one that was tried."""
    if growth.fixed or not growth.thinned:
        return 1.0
    kept = [stretch.kept(i) for i in range(len(stretch.share))]
    whole = sum(count / share for count, share in zip(kept, stretch.share, strict=True) if share)
    return whole / max(sum(kept), 1)


def _made(stretch: Stretch, growth: Growth, more: Floats) -> float:
    """Answers a second of all rows of a stretch."""
    later, share = stretch.later, np.maximum(stretch.share, 1e-12)
    seconds = stretch.seconds * len(later) / len(stretch.steps)
    others, own = sum(step.answers - step.own for step in later), sum(step.own for step in later)
    if growth.nearest:
        made = _of_nearest(others + own, stretch.kept(0), growth.nearest, stretch.share, more)
        return made / seconds / float(share[0])
    if not growth.thinned:
        return (others + own) / seconds
    by_pairs = share[0] ** growth.thinned if len(share) == 1 else np.prod(share) if growth.thinned > 1 else share[0]
    return (others / float(by_pairs) + own / float(share[0])) / seconds


def standard_error(stretches: Sequence[Stretch], growth: Growth) -> float:
    """Of answers a second by these stretches, as a share of them; infinite where there are none."""
    made, chances = _by_row(stretches, growth, np.ones(len(stretches[0].rates)))
    if not made.any():
        return float("inf")
    off = made - chances * made.sum() / max(float(chances.sum()), 1e-300)
    return float(np.sqrt((off**2).sum() * len(off) / max(1, len(off) - 1)) / made.sum())


def _by_row(stretches: Sequence[Stretch], growth: Growth, more: Floats) -> tuple[Floats, Floats]:
    """Answers of stretches, and what they are in proportion to, by the row: a stretch is tried for each of its rows."""
    rates = np.array([one.rates for one in stretches])
    rows = np.maximum(rates.sum(axis=1), 1e-300)
    made = np.array([_made(one, growth, more) for one in stretches])
    return made / rows, _chances(rates, 1 if growth.nearest else growth.answers) / rows


def _chances(rates: Floats, power: int) -> Floats:
    """What answers are in proportion to, by the rates of the streams, which are the last axis."""
    if power < 2:
        return np.asarray(rates.mean(axis=-1))
    return np.asarray(rates[..., 0] ** power if rates.shape[-1] == 1 else rates.prod(axis=-1))


def _cost(steps: Sequence[Step]) -> Callable[[float], float]:
    """Seconds of a core for a row, by how many rows are held: a line, neither part below 0.

    It rises only where that is beyond what the clock shows by chance: a call may hold far more rows than were tried.
    """
    some = [step for step in steps if sum(step.rows)]
    if not some:
        return lambda _: 0.0
    rows = np.array([sum(step.rows) for step in some], float)
    cost = np.array([step.seconds for step in some]) / rows
    held = np.array([step.state_rows for step in some], float)
    middle, mean = float(np.average(held, weights=rows)), float(np.average(cost, weights=rows))
    spread = held - middle
    width = float((rows * spread**2).sum())
    if len(some) < _FEWEST or width == 0:
        return lambda _: mean
    slope = float((rows * spread * cost).sum()) / width
    off = cost - mean - slope * spread
    error = np.sqrt(float((rows * off**2).sum()) / (len(some) - 2) / width)
    if slope <= _SURE * error:
        return lambda _: mean
    base = mean - slope * middle
    return lambda now: base + slope * now if base > 0 else mean * max(now, 1.0) / max(middle, 1.0)


def _of_nearest(made: int, rows: int, k: int, share: Sequence[float], more: Floats) -> float:
    """How many partners rows get once there are more of them: with those in reach as in a Poisson process."""
    if not rows or (share[1] > 0.999 and more[1] == 1):
        return float(made)
    each = min(made / rows, k * 0.999)
    low, high = 0.0, 60.0 + 4 * k
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if most_answers(middle, k) < each else (low, middle)
    return rows * most_answers(low * float(more[1]) / share[1], k)


def most_answers(mean: float, k: int) -> float:
    """The mean of the lesser of ``k`` and a Poisson number."""
    if mean <= 0:
        return 0.0
    chance = [exp(i * log(mean) - mean - lgamma(i + 1)) for i in range(k)]
    return k - sum((k - i) * p for i, p in enumerate(chance))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
