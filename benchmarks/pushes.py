"""Pushes of ten rows by hand, where 1,000, 10,000 and 100,000 rows are held.

    python -m benchmarks.pushes [--quick] [--json]

Each figure is the time of a push where 100,000 rows are held over that where 1,000 are: 1 where a push costs what its
rows and its answers do, 100 where all that is held is gone through. Rows lie as densely whatever is held, so that a
push has as many answers, and with each push as many rows leave their windows. At 1,000 rows all answers are those of
the call over whole tables. ``--only`` takes names of sessions; ``--quick`` takes the median of fewer pushes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count, islice
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from benchmarks.harness import arguments, report, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HELD = (1_000, 10_000, 100_000)
SPAN = 1000.0  # seconds in which the rows come that are held
WINDOW, BLOCK = f"{SPAN:.0f} seconds", ap.TumblingWindow(f"{2 * SPAN:.0f} seconds")
ROWS = 10  # of a push
CHECKED = 20  # pushes whose answers are compared
PUSHES = {True: 20, False: 100}
Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class Session:
    """A session by hand: what makes it of bare streams, the same over tables, and the rows of its streams."""

    streams: dict[str, dict[str, Any]]
    by_hand: Callable[..., Any]
    whole: Callable[..., pa.Table]
    rows: Callable[[int, int, int, int], pa.Table]  # how many, from which row on, of how many held, which stream
    settings: Callable[[int], dict[str, Any]] = field(default=lambda _: {})
    prepare: Callable[[Any, int], None] = field(default=lambda _call, _held: None)
    loads: int = 1  # rows that come before, for each that is held

    def first(self, held: int) -> Tables:
        """The rows that are held."""
        return {name: self.rows(self.loads * held, 0, held, i) for i, name in enumerate(self.streams)}

    def further(self, held: int) -> Iterator[Tables]:
        """The rows of the pushes after that."""
        for push in count():
            start = self.loads * held + push * ROWS
            yield {name: self.rows(ROWS, start, held, i) for i, name in enumerate(self.streams)}

    def begun(self, held: int) -> Any:
        """The session, without rows."""
        bare = [ap.Stream(None, **given, name=name) for name, given in self.streams.items()]
        call = self.by_hand(*bare, **self.settings(held))
        self.prepare(call, held)
        return call


def scattered(rows: int, start: int, held: int, stream: int) -> pa.Table:
    """Rows that are one a unit of space: ``id, t, x, y``, a velocity, and a level."""
    chance = np.random.default_rng([start, held, stream])
    side = np.sqrt(held)
    columns = {"id": np.arange(start, start + rows), "t": np.arange(start, start + rows) * (SPAN / held)}
    places = {name: chance.uniform(0.0, side, rows) for name in ("x", "y")}
    speeds = {name: chance.normal(0.0, 1e-3, rows) for name in ("vx", "vy")}
    return pa.table(columns | places | speeds | {"e": chance.uniform(0.5, 1.0, rows)})


def grouped(rows: int, start: int, held: int, stream: int) -> pa.Table:
    """The same, of a tenth as many groups."""
    groups = np.random.default_rng([start, held]).integers(0, held // 10, rows)
    return scattered(rows, start, held, stream).append_column("g", pa.array(groups))


def rounds(rows: int, start: int, held: int, stream: int) -> pa.Table:
    """Readings of ``held`` things in turn, a round in 100 seconds: each moves about where it is."""
    number = np.arange(start, start + rows)
    thing, lap = number % held, number // held
    home = np.random.default_rng([held, stream]).uniform(0.0, np.sqrt(held), (held, 2))
    place = home[thing] + 0.3 * np.random.default_rng([start, held]).normal(size=(rows, 2))
    t = 100.0 * lap + thing * (100.0 / held)
    return pa.table({"id": thing, "t": t, "x": place[:, 0], "y": place[:, 1]})


def doubled(rows: int, start: int, held: int, stream: int) -> pa.Table:
    """The same, where of ten readings one is of the thing and the time of the one before it."""
    table, number = rounds(rows, start, held, stream), np.arange(rows)
    before = table.take(number - (number % 10 == 9))
    return before.select(["id", "t"]).append_column("x", table["x"]).append_column("y", table["y"])


def sensed(rows: int, start: int, held: int, stream: int) -> pa.Table:
    """Readings of a tenth as many sensors, with as many different levels."""
    chance = np.random.default_rng([start, held, stream])
    sensors = max(1, held // 10)
    columns = {"id": chance.integers(0, sensors, rows), "t": np.arange(start, start + rows) * (SPAN / held)}
    return pa.table(columns | {"v": np.round(chance.uniform(0.0, held / 4.0, rows), 1)})


POINT: dict[str, Any] = {"key": "id", "time": "t", "value": ap.Exact("x", "y")}
UNSURE = POINT | {"existence": "e"}
LEVEL: dict[str, Any] = {"key": "id", "time": "t", "value": "v"}
HEADED = POINT | {"motion": ap.Velocity("vx", "vy", horizon=1000.0)}
BETWEEN = POINT | {"motion": ap.Straight(max_gap="150 seconds")}


def _two(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"left": given, "right": given}


def _joined(given: dict[str, Any], window: Callable[[int], Any] = lambda _: WINDOW, **more: Any) -> Session:
    def asked(held: int) -> dict[str, Any]:
        return {"epsilon": 0.5, "probability": 0.3, "window": window(held)} | more

    return Session(_two(given), ap.SimilarityJoin, ap.similarity_join, scattered, asked)


def _nearest(window: Callable[[int], Any]) -> Session:
    def asked(held: int) -> dict[str, Any]:
        return {"epsilon": 0.5, "window": window(held)}

    return Session(_two(POINT), ap.Nearest, ap.nearest, scattered, asked)


def _aggregate(
    how: str, window: Callable[[int], Any] = lambda _: WINDOW, rows: Any = scattered, **more: Any
) -> Session:
    def asked(held: int) -> dict[str, Any]:
        return {"aggregates": {"x": how}, "window": window(held)}

    return Session({"rows": POINT | more}, ap.WindowAggregate, ap.window_aggregate, rows, asked)


def _of_one(given: dict[str, Any], calls: tuple[Any, Any], rows: Any, **asked: Any) -> Session:
    return Session({"rows": given}, *calls, rows, lambda _: asked)


def _fences(held: int) -> pa.Table:
    """A fence for twenty places."""
    corners = [(10 * k % np.sqrt(held), 7 * k % np.sqrt(held)) for k in range(max(1, held // 20))]
    shapes = [f"POLYGON (({x} {y}, {x + 1} {y}, {x + 1} {y + 1}, {x} {y + 1}, {x} {y}))" for x, y in corners]
    return pa.table({"query": np.arange(len(shapes)), "region": shapes})


def _queries(held: int) -> pa.Table:
    """As many queries as rows are held."""
    x, y = np.random.default_rng(held).uniform(0.0, np.sqrt(held), (2, held))
    conditions = [f"x BETWEEN {a} AND {a + 1} AND y BETWEEN {b} AND {b + 1}" for a, b in zip(x, y, strict=True)]
    return pa.table({"query": np.arange(held), "condition": conditions})


def _matched(streams: dict[str, dict[str, Any]], queries: Callable[[int], pa.Table]) -> Session:
    def whole(*given: ap.Stream, held: int) -> pa.Table:
        return ap.match_queries(*given, queries=queries(held))

    def prepare(call: ap.QueryMatch, held: int) -> None:
        call.change(queries(held))

    return Session(streams, ap.QueryMatch, whole, scattered, prepare=prepare)


_NEAR = "left.id = right.id AND left.x - right.x BETWEEN -1 AND 1 WITHIN 1000 SECONDS"


_NEAREST: Any = (ap.Nearest, ap.nearest)
_SENSORS: Any = (ap.SensorJoin, ap.sensor_join)
_PHENOMENA: Any = (ap.Phenomena, ap.phenomena)
_CLOSE: dict[str, Any] = {"epsilon": 0.5, "probability": 0.5}
SESSIONS = {
    "join": _joined(POINT),
    "join_left": _joined(POINT, how="left"),
    "join_changes": _joined(POINT, emit="changes"),
    "join_count": _joined(POINT, ap.CountWindow),
    "join_uncertain_count": _joined(UNSURE, lambda held: ap.UncertainCountWindow(held // 2, 0.9)),
    "join_motion": _joined(HEADED),
    "join_between": _joined(BETWEEN),
    "nearest": _nearest(lambda _: WINDOW),
    "nearest_count": _nearest(ap.CountWindow),
    "assign": Session(
        _two(POINT), ap.Assign, ap.assign, scattered, lambda _: _CLOSE | {"by": "distance", "window": BLOCK}
    ),
    "outliers": _of_one(POINT, (ap.Outliers, ap.outliers), scattered, **_CLOSE, fewer_than=1, window=WINDOW),
    "aggregate_mean": _aggregate("mean"),
    "aggregate_unsure": _aggregate("sum", existence="e"),
    "aggregate_distribution": _of_one(
        POINT,
        (ap.WindowAggregate, ap.window_aggregate),
        scattered,
        aggregates={"x": "mean"},
        window=WINDOW,
        distribution=True,
    ),
    "aggregate_max": _aggregate("max"),
    "aggregate_median": _aggregate("median"),
    "aggregate_count": _aggregate("mean", ap.CountWindow),
    "aggregate_tumbling": _aggregate("mean", lambda _: BLOCK),
    "aggregate_groups": _aggregate("mean", rows=grouped, partition_by="g"),
    "aggregate_rows": _aggregate("mean", lambda _: ap.TumblingWindow(15), grouped, partition_by="g"),
    "encounters": Session({"things": BETWEEN}, ap.Encounters, ap.encounters, rounds, lambda _: _CLOSE, loads=2),
    "encounters_twice": Session({"things": BETWEEN}, ap.Encounters, ap.encounters, doubled, lambda _: _CLOSE, loads=2),
    "fence_events": Session(
        {"things": POINT}, ap.FenceEvents, ap.fence_events, rounds, lambda held: {"fences": _fences(held)}
    ),
    "fence_changes": Session(
        {"things": POINT},
        ap.FenceEvents,
        ap.fence_events,
        rounds,
        lambda held: {"fences": _fences(held)},
        lambda call, held: call.change(_fences(held).slice(0, 1)),
    ),
    "queries": _matched({"rows": POINT}, _queries),
    "queries_of_two": _matched(_two(POINT), lambda _: pa.table({"query": ["near"], "condition": [_NEAR]})),
    "sensors": _of_one(LEVEL, _SENSORS, sensed, resolution=1.0, window=WINDOW),
    "sensors_within": _of_one(LEVEL, _SENSORS, sensed, within=1.0, window=WINDOW),
    "phenomena": _of_one(LEVEL, _PHENOMENA, sensed, resolution=10.0, strength=2, span=WINDOW),
    "phenomena_within": _of_one(LEVEL, _PHENOMENA, sensed, within=5.0, strength=2, span=WINDOW),
    "samples": _of_one(POINT, (ap.SampleCollector, ap.collect_samples), scattered, every=WINDOW),
}


def ordered(table: pa.Table) -> list[str]:
    """The rows of answers, whatever order they came in, with nine digits of numbers."""

    def said(value: Any) -> str:
        return f"{value:.9g}" if isinstance(value, float) else repr(value)

    return sorted(" ".join(map(said, row.values())) for row in table.to_pylist())


def check(name: str, session: Session) -> None:
    """Raise where the pushes have other answers than the call over whole tables."""
    held = HELD[0]
    pushes = [session.first(held), *islice(session.further(held), CHECKED)]
    call = session.begun(held)
    found = pa.concat_tables([*(call.push(**push) for push in pushes), call.drain()])
    whole = [
        ap.Stream(pa.concat_tables([push[stream] for push in pushes]), **given, name=stream)
        for stream, given in session.streams.items()
    ]
    asked = session.settings(held)
    wanted = session.whole(*whole, **(asked or {"held": held}))
    if ordered(found) != ordered(wanted):
        raise RuntimeError(f"{name}: pushes have {len(found)} answers, other ones than the {len(wanted)} of the whole")
    say(f"{name}: {len(found):,} answers, the same as over whole tables")


def median_push(session: Session, held: int, pushes: int) -> float:
    """Seconds of a push where so many rows are held."""
    call, taken = session.begun(held), []
    call.push(**session.first(held))
    for push in islice(session.further(held), pushes):
        begin = time.perf_counter()
        call.push(**push)
        taken.append(time.perf_counter() - begin)
    return median(taken)


def main() -> None:
    """Run the sessions asked for."""
    given = arguments(__doc__ or "")
    figures: dict[str, float | None] = {}
    for name in given.only.split(",") if given.only else SESSIONS:
        session = SESSIONS[name]
        check(name, session)
        taken = [median_push(session, held, PUSHES[bool(given.quick)]) for held in HELD]
        say("  ".join(f"{held:,} held: {1e3 * seconds:.3f} ms" for held, seconds in zip(HELD, taken, strict=True)))
        figures[f"push_{name}"] = taken[-1] / taken[0]
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
