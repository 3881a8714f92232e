"""What a call will need, before it runs."""

from __future__ import annotations

import time as clock
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.api.by_hand import ByHand
from appulse.arguments import (
    ANYTHING,
    NAME,
    POSITIVE,
    Count,
    Kind,
    Positive,
    checked,
    either,
    instance,
    mapping,
    one_of,
)
from appulse.engines.planning import ENGINES, Growth, Plan, Step, Stretch, Trial, estimate, standard_error
from appulse.errors import BadArgument, nearest
from appulse.model.columns import chunk
from appulse.model.times import duration, to_micros
from appulse.windows.definitions import TimeWindow, TumblingWindow

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.stream import Stream

__all__ = ["Supply", "plan", "planned"]

#: Rows that one try takes at most, where it may be on some of the keys; and where it may not.
MOST_ROWS, _MOST_UNTHINNED = 30_000, 500_000
_FEW_ROWS, _OTHERS = 3_000, 4  # of each stretch, and how many there are at least beside the busiest
# More stretches are tried while the standard error of answers is above this share of them, up to so many rows and
# stretches. Each may read files anew: so many rows in all at most, whether in a stretch or not.
_SURE, _MOST_TRIED, _MOST_OTHERS, _MOST_READ = 0.2, 120_000, 128, 20_000_000
# Multiples of these are spread evenly over 0 to 1, however many there are: by each, and by both over a square.
_ALONG, _ACROSS = 0.5698402909980532, 0.7548776662466927
_FEWEST_KEYS = 24
_PUSHES, _FEWEST_PUSHES = 24, 6
_TRIES = 7
_STARTS = 1 << 16  # of stretches that are compared
_STILL = 1.15  # what holds at most so much more than before is steady

_PAIRS = ("SimilarityJoin", "SensorJoin", "Encounters")
_TILED = ("SimilarityJoin", "Encounters", "Outliers")

_Call: TypeAlias = Annotated[Any, instance(ByHand, "a call by hand, such as ap.SimilarityJoin(...)")]
_Rate: TypeAlias = Annotated[
    Any,
    either(
        Kind("rows a second", POSITIVE.take),
        mapping(NAME, POSITIVE, "a mapping from names of streams to rows a second"),
        instance(type(None), "None"),
    ),
]
_Engine: TypeAlias = Annotated[str, one_of(*ENGINES)]


class Supply(Protocol):
    """Rows to try a call on.

    ``times`` are those of each stream in order, microseconds, ``batch`` is how long a time of the streams a micro-batch
    takes in; None: it is short.
    """

    @property
    def batch(self) -> int | None: ...

    @property
    def times(self) -> Mapping[str, Ints]: ...

    def read(self, begin: int, end: int, keep: Mapping[str, tuple[str, float]]) -> dict[str, pa.Table]:
        """The rows of each stream in a stretch of time; of those in ``keep`` a share of the values of a column."""
        ...


@checked
def plan(
    call: _Call,
    sample: Annotated[Any, ANYTHING],
    *,
    rate: _Rate | None = None,
    memory: Positive | None = None,
    cores: Count | None = None,
    engine: _Engine = "process",
) -> Plan:
    """Estimate what a call needs, from a sample: rows held, answers per second, bytes of state, memory and cores.

    Longer samples are better: the estimate is for steady state in the busiest stretch. If that has too many rows, some
    of the keys are tried and the result is scaled up.

    Arguments:
    * ``call``: an object such as `SimilarityJoin` to which nothing was pushed; it is not changed.
    * ``sample``: a frame for a single stream, or a mapping of stream names to frames; its times give the rate of rows.
    * ``rate``: the expected rows per second, of all streams or by stream name.
    * ``memory, cores``: the available bytes and cores; ``refusals`` of the plan say what does not fit.
    * ``engine``: ``"process"``, or ``"spark"``, which includes the memory of Spark's driver and workers.

    Returns a `Plan`. Raises `BadArgument` if the sample has no rows, or if all its rows have one time and there is no
    ``rate``.

    >>> import appulse as ap
    >>> import pyarrow as pa
    >>> rows = pa.table({"id": range(4000), "at": [i / 10 for i in range(4000)], "x": [i % 40 for i in range(4000)]})
    >>> join = ap.SimilarityJoin(
    ...     ap.Stream(None, key="id", time="at", value=ap.Exact("x")), epsilon=0.5, probability=1.0, window="20 seconds"
    ... )
    >>> needs = ap.plan(join, rows, memory=8e9, cores=4)
    >>> needs.state_rows, round(needs.answers_per_second), needs.fits
    (201, 50, True)
    """
    return planned(call, _Frames(call, sample), rate=rate, memory=memory, cores=cores, engine=engine)


def planned(
    call: ByHand[Any],
    supply: Supply,
    *,
    rate: float | Mapping[str, float] | None = None,
    memory: float | None = None,
    cores: int | None = None,
    engine: str = "process",
    speed: float = 1.0,
) -> Plan:
    """The plan of a call over a supply of rows; see `plan`. ``speed``: of a replay."""
    if call.state()["state_rows"] or call.started:
        raise BadArgument("Rows were pushed to the call. Give a new one: it is tried on the sample alone.")
    growth = _growth(call)
    trial = _tried(call, supply, growth, rate, on_spark=engine == "spark")
    rates = _rates(rate, list(call.streams), trial)
    name = type(call).__name__
    return estimate(name, engine, trial, growth, rates=rates, memory=memory, cores=cores, speed=speed)


def _rates(rate: float | Mapping[str, float] | None, names: list[str], trial: Trial) -> list[float] | None:
    """Rows a second of each stream, as declared."""
    if rate is None:
        return None
    usual = trial.usual
    if not isinstance(rate, Mapping):
        return [float(rate * one / max(usual.sum(), 1e-12)) for one in usual]
    for name in rate:
        if name not in names:
            raise BadArgument(f"rate= names {name!r}, which is not a stream.{nearest(str(name), names)}")
    return [float(rate.get(name, one)) for name, one in zip(names, usual, strict=True)]


def _growth(call: ByHand[Any]) -> Growth:
    """How the figures of a call grow with its rows."""
    kind, streams = type(call).__name__, list(call.streams.values())
    settings = call.settings
    by_rows = _by_rows(call)
    grouped = all(stream.partitions for stream in streams)
    ways = max(2, len(streams))
    tiled = kind in _TILED
    if kind == "QueryMatch" and len(streams) == 1:
        return Growth(1, 0, 1, fixed=True)
    if kind == "QueryMatch":
        return Growth(ways, 1, (1 if grouped else 2) if settings.get("aggregate") is None else 0)
    if kind == "FenceEvents":
        return Growth(1, 1, 1)
    if kind == "Nearest":
        return Growth(1, 0 if by_rows else 1, 0 if by_rows else 1, settings["k"], tiled=True)
    if kind in _PAIRS and settings.get("how", "inner") == "inner":
        if by_rows:
            return Growth(1, 0, 1 if grouped else 0, tiled=tiled)
        return Growth(ways, 1, 1 if grouped else 2, tiled=tiled)
    return Growth(1, 0 if by_rows else 1, 1 if grouped and kind == "WindowAggregate" else 0, tiled=tiled)


def _by_rows(call: ByHand[Any]) -> bool:
    """Whether windows go by rows, not by time."""
    window = call.settings.get("window")
    in_time = isinstance(window, TumblingWindow) and not isinstance(window.length, int)
    return window is not None and not isinstance(window, TimeWindow | str) and not in_time


def _stays(call: ByHand[Any]) -> int | None:
    """For how long (microseconds) rows are held, where windows and motions say so."""
    settings, names = call.settings, tuple(call.streams)
    window, found = settings.get("window"), []
    if isinstance(window, TimeWindow):
        found.append(max(window.micros(names)))
    elif isinstance(window, TumblingWindow) and not isinstance(window.length, int):
        found.append(duration(window.length))
    elif window is not None and window != "tick":
        return None
    found += [duration(settings[name]) for name in ("gap", "span", "over") if settings.get(name) is not None]
    for stream in call.streams.values():
        moves = stream.motion
        found += [duration(getattr(moves, n)) for n in ("max_gap", "horizon") if getattr(moves, n, None) is not None]
    lateness = [duration(stream.lateness) for stream in call.streams.values() if stream.lateness is not None]
    return sum(found) + max(lateness, default=0) if found else None


def _until(every: Ints, call: ByHand[Any], rate: float | Mapping[str, float] | None) -> int:
    """When the next rows would come after those of a sample: as long after the last as times are apart on the mean.

    Where all are of one time, ``rate`` says how long rows take to come.
    """
    first, last, apart = int(every[0]), int(every[-1]), int((np.diff(every) > 0).sum())
    names = list(call.streams)
    if apart:
        return last + max(1, (last - first) // apart)
    if _by_rows(call):
        raise BadArgument(
            "All rows of the sample are of one time, and windows of rows wait for all rows of a time. Give rows of "
            "several times."
        )
    if rate is None or (isinstance(rate, Mapping) and not set(names) <= set(rate)):
        raise BadArgument(
            "All rows of the sample are of one time: it does not show how many come in a second. Give rows of several "
            "times, or rate= of every stream; in a job file it is rate in [limits], at the command line --rate."
        )
    each = sum(rate[name] for name in names) if isinstance(rate, Mapping) else rate
    return first + max(1, round(1e6 * len(every) / each))


def _tried(
    call: ByHand[Any], supply: Supply, growth: Growth, rate: float | Mapping[str, float] | None, *, on_spark: bool
) -> Trial:
    """A trial that is long enough for what is held to be steady, if there are rows for it."""
    every = np.sort(np.concatenate([supply.times[name] for name in call.streams]))
    if not len(every):
        raise BadArgument("The sample has no rows with a time. Give some: rows of every stream, over several windows.")
    begin, end = int(every[0]), _until(every, call, rate)
    stays, batch = _stays(call), supply.batch
    span = _long_enough(every, begin, end, 3 * (stays or 0), 8 * (batch or 0))
    most = MOST_ROWS if growth.thinned else _MOST_UNTHINNED
    for _ in range(_TRIES):
        span = min(span, end - begin)
        first, count = _busiest(every, begin, end, span)
        keep: dict[str, tuple[str, float]] = {}
        if count > most and growth.thinned:
            keep = _keeping(call, supply, growth, first, first + span, most / count)
        cut = count > _MOST_UNTHINNED and not keep
        if cut:
            span = max(1, span * _MOST_UNTHINNED // count)
            first, count = _busiest(every, begin, end, span)
        busiest = _stretch(call, supply, first, span, keep)
        steady = _is_steady(busiest.steps)
        if steady or cut or span >= end - begin:
            break
        span = span * 5 // 2
    others: list[Stretch] = []
    if (end - begin) >= (_OTHERS + 2) * span and (count <= MOST_ROWS or keep):
        tried, several = 0, min(_MOST_OTHERS, max(_OTHERS, _MOST_READ // len(every)))
        for i in range(1, several + 1):  # any row is as likely, at any place in the second half
            row = int(every[int(i * _ALONG % 1.0 * len(every))]) - int((0.5 + 0.5 * (i * _ACROSS % 1.0)) * span)
            others.append(_stretch(call, supply, min(max(row, begin), end - span), span, keep))
            tried += sum(sum(step.rows) for step in others[-1].steps)
            if i >= _OTHERS and (tried > _MOST_TRIED or standard_error([busiest, *others], growth) < _SURE):
                break
    fullest = None
    if stays is not None and growth.rows and not growth.fixed:
        full = _busiest(every, begin, end, stays)[0] + stays + 1
        fullest = _stretch(call, supply, max(begin, full - span), min(span, full - begin), keep)
    bins = max(1, (end - begin) // span)
    typical = _by_bins([supply.times[name] for name in call.streams], begin, (end - begin) / bins)
    behind = None
    if on_spark and batch and growth.rows and not growth.fixed:
        longer = min(max(span, 8 * batch), end - begin)
        first, count = _busiest(every, begin, end, longer)
        if count > most and growth.thinned:
            keep = _keeping(call, supply, growth, first, first + longer, most / count)
        behind = _stretch(_behind(call, batch), supply, first, longer, keep)
        steady = steady and _is_steady(behind.steps)
    known = None if stays is None else stays / 1e6
    return Trial(busiest, others, typical, bins, known, steady, fullest, behind, len(every))


def _long_enough(every: Ints, begin: int, end: int, stays: int, batches: int) -> int:
    """How long a stretch is at first: for what is held, for some micro-batches, and for enough rows.

    Where rows come in bursts, far denser than in such a stretch, it is as long as enough of them take within these.
    """
    span = min(max(stays, batches, (end - begin) * _FEW_ROWS // len(every), 1), end - begin)
    apart = every[_FEW_ROWS:] - every[:-_FEW_ROWS]
    burst = max(stays, int(apart.min()), 1) if len(apart) else span
    _, count = _busiest(every, begin, end, span)
    return burst if 2 * count * burst < _FEW_ROWS * span else span


def _by_bins(each: list[Ints], begin: int, width: float) -> Floats:
    """Rows a second of each stream, by stretches of this width that have any."""
    places = [((times - begin) / width).astype(np.int64) for times in each]
    used = np.unique(np.concatenate(places))
    counts = [np.bincount(np.searchsorted(used, place), minlength=len(used)) for place in places]
    return np.asarray(np.stack(counts, axis=1) * (1e6 / width))


def _behind(call: ByHand[Any], batch: int) -> ByHand[Any]:
    """The call as on Spark, whose watermark is two micro-batches behind the newest rows."""
    other = copy(call)
    vars(other)["_streams"] = {
        name: replace(stream, lateness=timedelta(microseconds=stream.lateness_micros + 2 * batch))
        for name, stream in call.streams.items()
    }
    return other


def _stretch(
    call: ByHand[Any], supply: Supply, begin: int, span: int, keep: Mapping[str, tuple[str, float]]
) -> Stretch:
    """The call, tried on a stretch."""
    batches = 0 if supply.batch is None else span // supply.batch
    pushes = min(batches, 2 * _PUSHES) if batches >= _FEWEST_PUSHES else _PUSHES
    end = begin + span
    each = [supply.times[name] for name in call.streams]
    every = np.concatenate([times[slice(*np.searchsorted(times, [begin, end]))] for times in each])
    pushes = min(pushes, max(1, len(np.unique(every))))  # where rows come in scans, each push has its own
    edges, tables = np.linspace(begin, end, pushes + 1).astype(np.int64), supply.read(begin, end, keep)
    if pushes == 1:
        _steps(copy(call), tables, edges)  # the first push of a process takes longer
    steps = _steps(copy(call), tables, edges)
    skipped = pushes // 2
    if _ends_by_time(call):  # all is as ever once the first rows have left
        skipped = min(skipped, -(-(_stays(call) or 0) * pushes // span))
    since = int(edges[skipped])
    there = [_between(supply.times[name], since, end) for name in call.streams]
    came = [sum(step.rows[i] for step in steps[skipped:]) for i in range(len(there))]
    share = tuple(min(1.0, got / count) if count else 1.0 for got, count in zip(came, there, strict=True))
    return Stretch(steps, span / 1e6, share, tuple(count * 1e6 / (end - since) for count in there), skipped)


def _ends_by_time(call: ByHand[Any]) -> bool:
    """Whether nothing outlives the windows of its rows, of a certain length of time."""
    moves = any(stream.motion is not None for stream in call.streams.values())
    return isinstance(call.settings.get("window"), TimeWindow) and not moves


def _busiest(every: Ints, begin: int, end: int, span: int) -> tuple[int, int]:
    """Where a stretch of this length has the most rows, and how many."""
    if span >= end - begin:
        return begin, len(every)
    starts = np.unique(every[:: max(1, len(every) // _STARTS)])
    starts = starts[starts <= end - span] if (starts <= end - span).any() else np.array([begin])
    counts = np.searchsorted(every, starts + span) - np.searchsorted(every, starts)
    best = int(counts.argmax())
    return int(starts[best]), int(counts[best])


def _between(times: Ints, begin: int, end: int) -> int:
    return int(np.searchsorted(times, end) - np.searchsorted(times, begin))


def _keeping(
    call: ByHand[Any], supply: Supply, growth: Growth, begin: int, end: int, share: float
) -> dict[str, tuple[str, float]]:
    """By which column, and how many of its values, each stream is thinned; nothing where there are too few values."""
    streams = call.streams
    grouped = all(stream.partitions for stream in streams.values())
    column = {name: stream.partitions[0] if grouped else stream.key for name, stream in streams.items()}
    names = list(streams)[:1] if growth.nearest else list(streams)
    some = supply.read(begin, begin + max(1, (end - begin) // 20), {})
    keys = sum(len(pc.unique(some[name][column[name]])) for name in names) / len(names)
    share = max(share, _FEWEST_KEYS / max(keys, 1))
    return {name: (column[name], share) for name in names} if share < 1 else {}


def _steps(call: ByHand[Any], tables: dict[str, pa.Table], edges: Ints) -> list[Step]:
    """Push the rows of a stretch, in order of time, and see what is held."""
    streams = call.streams
    micros = {name: _micros(tables[name], stream) for name, stream in streams.items()}
    steps = []
    for low, high in pairwise(edges):
        part = {}
        for name, table in tables.items():
            first, last = np.searchsorted(micros[name], [low, high])
            part[name] = table.slice(first, last - first)
        begun = clock.process_time()
        answers = call.push(**part)
        took = clock.process_time() - begun
        held = call.state()
        rows = tuple(len(part[name]) for name in streams)
        steps.append(Step(rows, held["state_rows"], held["state_bytes"], len(answers), _own(answers), took))
    return steps


def _own(answers: pa.Table) -> int:
    """Of pairs, those of rows with one key."""
    names = answers.column_names
    if "left_key" not in names or "right_key" not in names or not len(answers):
        return 0
    left, right = answers["left_key"], answers["right_key"]
    if left.type != right.type:
        return 0
    return int(pc.sum(pc.equal(left, right)).as_py() or 0)


def _is_steady(steps: Sequence[Step]) -> bool:
    """Whether the last third holds about as much as the one before it."""
    third = len(steps) // 3
    if not third:
        return False
    before = max(step.state_rows for step in steps[third:-third] or steps[:third])
    return max(step.state_rows for step in steps[-third:]) <= _STILL * before


def _micros(table: pa.Table, stream: Stream) -> Ints:
    column = table[stream.time].combine_chunks()
    return to_micros(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column, stream.unit)[0]


class _Frames:
    """Rows at hand."""

    def __init__(self, call: ByHand[Any], sample: Any) -> None:
        from appulse.engines.local import as_table

        names = list(call.streams)
        given = sample if isinstance(sample, Mapping) else {names[0]: sample}
        for name in given:
            if name not in names:
                raise BadArgument(f"sample= names {name!r}, which is not a stream.{nearest(str(name), names)}")
        if missing := [name for name in names if name not in given]:
            raise BadArgument(f"sample= has no rows of the stream {missing[0]!r}. Give a mapping with each stream.")
        self.batch: int | None = None
        self._tables: dict[str, pa.Table] = {}
        self.times: dict[str, Ints] = {}
        for name, stream in call.streams.items():
            self._tables[name], self.times[name] = in_order(as_table(given[name]), stream)

    def read(self, begin: int, end: int, keep: Mapping[str, tuple[str, float]]) -> dict[str, pa.Table]:
        """The rows of a stretch of time."""
        found = {}
        for name, table in self._tables.items():
            first, last = np.searchsorted(self.times[name], [begin, end])
            part = table.slice(first, last - first)
            found[name] = some_of(part, *keep[name]) if name in keep else part
        return found


def in_order(table: pa.Table, stream: Stream) -> tuple[pa.Table, Ints]:
    """Rows in order of time, those without one left out, and their times."""
    if stream.time not in table.column_names:
        raise BadArgument(f"The sample has no column {stream.time!r}.{nearest(stream.time, table.column_names)}")
    micros, null, strange = to_micros(chunk(table[stream.time]), stream.unit)
    order = np.argsort(micros, kind="stable")
    order = order[~(null | strange)[order]]
    return table.take(pa.array(order)), micros[order]


def some_of(table: pa.Table, column: str, share: float) -> pa.Table:
    """The rows with a share of a column's values, chosen by a hash: the same in each stream."""
    codes = chunk(table[column]).dictionary_encode(null_encoding="encode")
    chosen = [zlib.crc32(repr(value).encode()) < share * (1 << 32) for value in codes.dictionary.to_pylist()]
    return table.filter(pa.array(np.array(chosen, bool)[np.asarray(codes.indices)]))
