"""Hypothesis strategies: joins of small streams, full of ties, duplicates, gaps, bad rows and disorder.

Coordinates are mostly multiples of one half and weights small fractions, so that pairs at exactly epsilon and at
exactly the threshold are common. A `Case` knows how to be run by appulse and how to be answered by the naive twin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import combinations, combinations_with_replacement
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

import appulse as ap
from tests.helpers import hands, naive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

NAN, INF = math.nan, math.inf
EPSILONS = (0.0, 0.5, 1.0, 1.0, 1.5, 2.0, math.sqrt(2.0), math.sqrt(3.0), 2.5)
ALPHAS = (1.0, 0.5, 0.25, 0.75, 1 / 3, 2 / 3, 1 / 9, 0.9, 0.6, 0.1, 1 / 8, 1 / 16, 1 / 64, 1e-6, 3e-9)
KEY_TYPES = {
    "int": pa.int64(),
    "small": pa.int32(),
    "text": pa.string(),
    "decimal": pa.decimal128(10, 2),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.string())]),
    "timestamp": pa.timestamp("us"),
}
_MORE_KEY_TYPES = {
    "unsigned": pa.uint64(),
    "bool": pa.bool_(),
    "float": pa.float64(),
    "date": pa.date32(),
    "large": pa.large_string(),
}
TIME_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "timestamp": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
}
_MORE_TIME_TYPES = {"nanoseconds": pa.timestamp("ns"), "seconds": pa.timestamp("s"), "small": pa.int32()}
_DAY = datetime(2024, 2, 29)  # noqa: DTZ001 - times without zone are UTC


@dataclass(frozen=True)
class Case:
    """One call of the similarity join: tables, streams without frames, and everything else but the options."""

    tables: tuple[pa.Table, ...]
    streams: tuple[ap.Stream, ...]
    d: int
    epsilon: Any  # a number, or one for each way
    probability: float
    window: Any  # any window of the front door
    self_join: bool = False
    different: str | None = None
    emit: str = "matches"
    metric: str = "euclidean"
    scale: Any = None

    def __repr__(self) -> str:
        tables = [(table.schema.types, table.to_pylist()) for table in self.tables]
        return f"Case({tables}, {self.streams}, {self.settings}, self_join={self.self_join}, d={self.d})"

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "epsilon": self.epsilon,
            "probability": self.probability,
            "window": self.window,
        }
        settings |= {"different": self.different} if self.self_join else {}
        settings |= {"metric": self.metric} if self.metric != "euclidean" else {}
        settings |= {"scale": self.scale} if self.scale is not None else {}
        return settings | ({"emit": self.emit} if self.emit == "changes" else {})

    def framed(self, convert: Callable[[pa.Table], Any] = lambda table: table) -> list[ap.Stream]:
        """The streams with their frames, perhaps of another kind."""
        return [replace(s, frame=convert(t)) for s, t in zip(self.streams, self.tables, strict=True)]

    def run(self, options: ap.Options | None = None, convert: Callable[[pa.Table], Any] = lambda table: table) -> Any:
        """The result of the call."""
        call = ap.self_join if self.self_join else ap.similarity_join
        return call(*self.framed(convert), **self.settings, options=options)

    def by_hand(self, options: ap.Options | None = None) -> ap.SimilarityJoin:
        """The same call as a join that rows are pushed to."""
        named: dict[str, Any] = dict(zip(self.names, self.streams, strict=True))
        return hands.similarity_join(**self.settings, options=options, **named)

    @property
    def names(self) -> list[str]:
        return naive.stream_names(self.streams)

    @property
    def attribute(self) -> str | None:
        """The certain column that a delta window looks at."""
        return naive.attribute_of(self.window)

    @property
    def question(self) -> dict[str, Any]:
        """What the naive twin is asked, beside rows and streams."""
        settings: dict[str, Any] = {"d": self.d, "self_join": self.self_join, "different": self.different}
        settings |= {"metric": self.metric, "scale": self.scale}
        return settings | {"epsilon": self.epsilon, "probability": self.probability, "window": self.window}

    @property
    def rows(self) -> list[list[dict[str, Any]]]:
        """The rows of each table."""
        return [table.to_pylist() for table in self.tables]

    def expected(self) -> naive.Result:
        """What the naive twin says."""
        return naive.join(self.rows, self.streams, **self.question)

    def expected_changes(self) -> list[naive.Change]:
        """What the naive twin says comes and goes."""
        return naive.changes(self.rows, self.streams, **self.question)

    def expected_standing(self, tick: int) -> list[naive.Answer]:
        """What the naive twin says stands at a tick, in microseconds."""
        return naive.standing(self.rows, self.streams, tick, **self.question)

    def pushed(
        self, pushes: Sequence[Mapping[int, Sequence[int]]], options: ap.Options | None = None
    ) -> tuple[list[pa.Table], pa.Table]:
        """Answers of each push, and the rejects after all of them."""
        join = self.by_hand(options)
        answers = [join.push(**self.frames(push)) for push in pushes]
        return answers, join.rejects()

    def frames(self, push: Mapping[int, Sequence[int]]) -> dict[str, pa.Table]:
        """The rows of a push, by stream."""
        return {
            name: table.take(pa.array(push.get(s, []), pa.int64()))
            for s, (name, table) in enumerate(zip(self.names, self.tables, strict=True))
        }


# --- values -----------------------------------------------------------------------------------------------------


@cache  # what is drawn from for every row is made once
def coordinates(kind: str, offset: float = 0.0) -> SearchStrategy[float]:
    """Multiples of one half or one third, or any numbers."""
    near = {
        "halves": st.integers(-3, 3).map(lambda i: i / 2),
        "thirds": st.integers(-4, 4).map(lambda i: i / 3),
        "any": st.floats(-2, 2),
    }[kind]
    return near.map(lambda value: offset + value)


@st.composite
def sample_weights(draw: DrawFn, n: int) -> list[float]:
    """Weights k / m that sum to at most 1, zeros among them."""
    m = draw(st.sampled_from((2, 3, 4, 8, 10, 100)))
    parts: list[int] = []
    left = m
    for _ in range(n):
        parts.append(draw(st.integers(0, left)))
        left -= parts[-1]
    if left and draw(st.booleans()):
        parts[0] += left
    if not any(parts):
        parts[0] = m
    return [part / m for part in parts]


# Up, down and back again when drawn row by row; 1.1 - 0.6 is more than one half, 0.6 - 0.1 is not.
attributes = st.sampled_from((0.0, 0.5, 1.0, 1.0, 2.0, 3.0, -1.0, 0.1, 0.6, 1.1))
existences = st.sampled_from((1.0, 0.5, 0.25, 0.75, 0.9, 0.1, 1 / 3))
# For windows that count the rows that exist.
doubts = st.one_of(st.sampled_from((0.1, 0.2, 0.5, 0.9, 0.9, 1.0, 1.0)), st.floats(0.01, 1.0))
confidences = st.one_of(st.sampled_from((0.5, 0.9, 0.95, 0.999)), st.floats(0.01, 0.9999))
_margins = st.sampled_from((0.0, 0.0, 0.5, 1.0, 0.3))
spreads_ = st.sampled_from((0.0, 0.5, 1.0, 0.25, 2.0, 0.3, 1e-3))

_tags = st.sampled_from(("u", "v", None))
_steps = st.integers(0, 6)
_bits, _letters = st.integers(0, 1), st.sampled_from(("n", "s"))
_few = st.integers(1, 5)
_angles = st.sampled_from((0.0, 30.0, 90.0, -45.0, 400.0))
_roots = st.sampled_from((0.0, 0.5, 1.0, -0.5, 0.25))
_quarter, _sixth = st.integers(0, 3), st.integers(0, 5)


@cache
def _key(kind: str) -> SearchStrategy[Any]:
    small = st.integers(0, 3)
    return {
        "int": st.integers(-3, 3),
        "small": small,
        "unsigned": st.sampled_from((0, 1, 2**64 - 1)),
        "text": st.sampled_from(("", "a", "b", "aa", "ä", "\U0001f600", "\uffff")),
        "large": st.sampled_from(("a", "b")),
        "decimal": st.sampled_from((Decimal("-1.50"), Decimal("0.00"), Decimal("2.25"), Decimal("-99999999.99"))),
        "struct": st.fixed_dictionaries(
            {"a": st.one_of(st.none(), small), "b": st.one_of(st.none(), st.sampled_from(("", "x", "yz")))}
        ),
        "timestamp": small.map(lambda i: _DAY + timedelta(microseconds=i)),
        "bool": st.booleans(),
        "float": st.sampled_from((0.0, -0.0, 0.5, -1.5)),
        "date": small.map(lambda i: date(1969, 12, 30) + timedelta(days=i)),
    }[kind]


def _time(kind: str, seconds: float) -> Any:
    if kind in ("int", "small"):
        return int(seconds)
    return seconds if kind == "float" else _DAY + timedelta(seconds=seconds)


# --- streams ----------------------------------------------------------------------------------------------------

MODELS = ("exact", "samples", "weighted", "line", "gaussian", "gaussians", "ball", "covariance", "ellipse")
#: Models of places on the Earth, in two dimensions; they do not mix with others.
PLACES = ("place", "position", "elliptic position")
#: The same with an altitude, in three dimensions.
ALTITUDES = ("high place", "high position", "high elliptic position")
# Around which places are drawn, a hundredth of a degree apart: some cross the 180th meridian, or a pole.
_AROUND = ((0.0, 0.0), (52.5, 13.4), (-17.0, 180.0), (90.0, 0.0), (-90.0, 0.0), (0.005, -180.0))


@dataclass(frozen=True)
class _Shape:
    """How the table of one stream looks."""

    model: str
    d: int
    key: str
    time: str
    existence: bool
    partitions: int
    constant: bool  # one sigma or radius for all rows
    offset: float
    coordinates: str
    points: int
    named: bool
    window: str  # its kind
    around: tuple[float, float] = (0.0, 0.0)
    earth: str = "wgs84"
    margin: str | float = 0.0

    @property
    def places(self) -> bool:
        """Whether rows are places on the Earth."""
        return self.model in (*PLACES, *ALTITUDES)

    @property
    def exact(self) -> bool:
        """Whether rows have no error."""
        return self.model in ("exact", "place", "high place")

    @property
    def delta(self) -> bool:
        """Whether the window looks at column m."""
        return self.window == "delta"

    @property
    def existences(self) -> SearchStrategy[float]:
        return doubts if self.window == "uncertain" else existences

    @property
    def points_at(self) -> SearchStrategy[float]:
        return coordinates(self.coordinates, self.offset)

    @property
    def value(self) -> naive.Model:
        columns = [f"x{k}" for k in range(self.d)]
        if self.model == "exact":
            return ap.Exact(*columns)
        if self.places:
            sigma, above = ("s0", "s1") if not self.constant else (500.0, 300.0)
            errors: dict[str, Any] = {} if self.exact else {"sigma": sigma}
            if "elliptic" in self.model:
                errors = {"ellipse": ("s0", "s1", "angle") if not self.constant else (500.0, 300.0, "angle")}
            if self.model in ALTITUDES:
                above = above if "elliptic" not in self.model else 300.0
                errors |= {"altitude": columns[2]} | ({} if self.exact else {"altitude_sigma": above})
            return ap.Position(columns[0], columns[1], earth=self.earth, **errors)
        if self.model in ("samples", "weighted", "line"):
            # An uncertain delta window needs one name for a dimension of all streams.
            name = "x" if self.window == "uncertain-delta" else "n"
            names = tuple(f"{name}{k}" for k in range(self.d)) if self.named else None
            return ap.Samples("samples", weights="weights" if self.model == "weighted" else None, names=names)
        if self.model == "ball":
            return ap.Ball(*columns, radius=0.5 if self.constant else "s0", samples=self.points)
        if self.model == "gaussian":
            return ap.Gaussian(*columns, sigma=0.5 if self.constant else "s0", samples=self.points)
        if self.model == "covariance":
            entries = [f"c{k}" for k in range(self.d * (self.d + 1) // 2)]
            return ap.Gaussian(*columns, covariance=entries, samples=self.points)
        if self.model == "ellipse":
            return ap.Gaussian(*columns, ellipse=("s0", 0.5 if self.constant else "s1", "angle"), samples=self.points)
        sigmas: list[str | float] = [f"s{k}" for k in range(self.d)]
        if self.constant:
            sigmas[-1] = 0.25
        return ap.Gaussian(*columns, sigma=sigmas, samples=self.points)

    @property
    def schema(self) -> pa.Schema:
        number = pa.float64()
        fields: list[tuple[str, pa.DataType]] = [
            ("id", (KEY_TYPES | _MORE_KEY_TYPES)[self.key]),
            ("ts", (TIME_TYPES | _MORE_TIME_TYPES)[self.time]),
            ("tag", pa.string()),
            ("m", number),
        ]
        if self.model in ("samples", "weighted"):
            fields.append(("samples", pa.list_(pa.list_(number))))
        elif self.model == "line":
            fields.append(("samples", pa.list_(number)))
        else:
            fields += [(f"x{k}", number) for k in range(self.d)] + [(f"s{k}", number) for k in range(self.d)]
        if "ellip" in self.model:
            fields.append(("angle", number))
        if self.model == "covariance":
            fields += [(f"c{k}", number) for k in range(self.d * (self.d + 1) // 2)]
        fields.append(("weights", pa.list_(number)))
        fields += [("exists", number), ("grow", number), ("p0", pa.int64()), ("p1", pa.string())]
        return pa.schema(fields)


@st.composite
def _rows(draw: DrawFn, shape: _Shape, bad: bool, least: int, most: int) -> list[dict[str, Any]]:
    rows = []
    for _ in range(draw(st.integers(least, most))):
        row = draw(_row(shape))
        if bad and draw(_quarter) == 0:
            row |= draw(_spoiled(shape, row))
        rows.append(row)
        if draw(_sixth) == 0:
            rows.append(dict(row))  # an equal twin
    return rows


@st.composite
def _row(draw: DrawFn, shape: _Shape) -> dict[str, Any]:
    step = 1.0 if shape.time in ("int", "small", "seconds") else 0.5
    row: dict[str, Any] = {
        "id": draw(_key(shape.key)),
        "ts": _time(shape.time, step * draw(_steps)),
        "tag": draw(_tags),
        "m": draw(attributes) if shape.delta else None,
        "weights": None,
        "exists": draw(shape.existences) if shape.existence else None,
        "grow": draw(_margins) * (1000.0 if shape.places else 1.0) if shape.margin == "grow" else None,
        "p0": draw(_bits),
        "p1": draw(_letters),
    }
    if shape.model in ("samples", "weighted", "line"):
        n = draw(_few)
        samples = [[draw(shape.points_at) for _ in range(shape.d)] for _ in range(n)]
        row["samples"] = [sample[0] for sample in samples] if shape.model == "line" else samples
        if shape.model == "weighted":
            row["weights"] = weights = draw(sample_weights(n))
            odd = [None, [NAN] * shape.d, [0.0] * (shape.d + 1), [None] * shape.d]
            for i in range(n):
                if weights[i] == 0.0 and draw(st.booleans()):  # what weighs nothing may be anything
                    samples[i] = draw(st.sampled_from(odd))
    elif shape.places:
        row |= draw(_place(shape))
    else:
        for k in range(shape.d):
            row[f"x{k}"] = draw(shape.points_at)
            row[f"s{k}"] = draw(spreads_)
    if "ellip" in shape.model:
        row["angle"] = draw(_angles)
    if shape.model == "covariance":
        root = [[draw(_roots) for _ in range(shape.d)] for _ in range(shape.d)]
        pairs = combinations_with_replacement(range(shape.d), 2)
        row |= {f"c{i}": sum(x * y for x, y in zip(root[k], root[m], strict=True)) for i, (k, m) in enumerate(pairs)}
    return row


@st.composite
def _place(draw: DrawFn, shape: _Shape) -> dict[str, Any]:
    """A place, and the deviations of its error."""
    lat, lon = shape.around
    steps = st.integers(-3, 3)
    north, east = lat + 0.01 * draw(steps), lon + draw(steps) * (60.0 if abs(lat) == 90.0 else 0.01)
    spreads = st.sampled_from((0.0, 500.0, 1000.0, 250.0, 2000.0, 300.0))
    turned = 360.0 * draw(st.sampled_from((0, 0, 0, 1, -1)))
    most = 89.99 if "elliptic" in shape.model else 90.0  # at a pole no angle from north means anything
    row = {"x0": max(-most, min(most, north)), "x1": east + turned, "s0": draw(spreads), "s1": draw(spreads)}
    return row if shape.d == 2 else row | {"x2": 300.0 * draw(steps), "s2": 0.0}


@st.composite
def _spoiled(draw: DrawFn, shape: _Shape, row: dict[str, Any]) -> dict[str, Any]:
    """What to change so that the row is unusable."""
    ways: list[dict[str, Any]] = [{"id": None}, {"ts": None}]
    if shape.delta:
        ways += [{"m": value} for value in (None, NAN, INF, -INF)]
    if shape.margin == "grow":
        ways += [{"grow": value} for value in (-0.5, NAN, None, INF)]
    if shape.time == "float":
        ways += [{"ts": NAN}, {"ts": INF}, {"ts": 1e300}]
    if shape.partitions:
        ways.append({f"p{shape.partitions - 1}": None})
    if shape.existence:
        ways += [{"exists": value} for value in (0.0, -0.5, 1.5, NAN, None)]
    if shape.model in ("samples", "weighted", "line"):
        samples = list(row["samples"])
        spare: Any = [0.0] * (shape.d + 1)
        short: Any = [0.0] * (shape.d - 1)
        ways += [{"samples": None}, {"samples": []}]
        if shape.model == "line":
            ways += [{"samples": [*samples[:-1], value]} for value in (NAN, INF, None)]
        else:
            ways += [{"samples": [*samples[:-1], [value] * shape.d]} for value in (NAN, -INF, None)]
            ways += [{"samples": [*samples[:-1], None]}]
            if shape.named:  # else the rows themselves tell the number of dimensions
                ways += [{"samples": [*samples[:-1], spare]}, {"samples": [*samples[:-1], short]}]
        if shape.model == "weighted":
            weights = list(row["weights"])
            ways += [{"weights": None}, {"weights": []}, {"weights": [*weights, 0.0]}]
            ways += [{"weights": [-0.25, *weights[1:]]}, {"weights": [0.0] * len(weights)}]
            ways += [{"weights": [value, *weights[1:]]} for value in (NAN, None, 1.5, 1.0 + 1e-6)]
    else:
        ways += _spoiled_centre(shape)
    return draw(st.sampled_from(ways))


def _spoiled_centre(shape: _Shape) -> list[dict[str, Any]]:
    """The same, of a row with a centre and a spread."""
    ways: list[dict[str, Any]] = [{f"x{shape.d - 1}": value} for value in (NAN, INF, None)]
    if shape.places:
        ways += [{"x0": value} for value in (90.001, -91.0, 1e300)]
        ways += [{"s0": 100_001.0}] if not shape.exact and not shape.constant else []
    if shape.model == "covariance":
        ways += [{"c0": value} for value in (-1.0, NAN, None, INF)]
        ways += [{"c0": 1.0, "c1": 2.0, f"c{shape.d}": 1.0}] if shape.d > 1 else []
    elif "ellip" in shape.model:
        ways += [{"angle": NAN}, {"angle": None}]
    if not shape.constant and not shape.exact and shape.model != "covariance":
        ways += [{"s0": value} for value in (-1.0, NAN, None, INF)]
    return ways


def _window(kind: str, streams: Sequence[ap.Stream], d: int) -> SearchStrategy[Any]:
    """A window of a kind: "time", "count", "delta", "tumble", "uncertain" or "uncertain-delta"."""
    sizes = st.sampled_from((1, 2, 3, 5, 100))
    if kind == "time":
        lengths = st.sampled_from((2.0, 1.0, 0.0, 0.5, 100.0, 100.0))
        own = st.fixed_dictionaries({}, optional=dict.fromkeys(naive.stream_names(streams), lengths))
        return st.builds(lambda length, per_stream: ap.TimeWindow(length, per_stream=per_stream or None), lengths, own)
    if kind == "count":
        return sizes.map(ap.CountWindow)
    if kind == "delta":
        return st.sampled_from((0.0, 0.5, 1.0, 2.0)).map(lambda bound: ap.DeltaWindow("m", bound))
    if kind == "uncertain":
        return _uncertain(streams)
    if kind == "uncertain-delta":
        # Points of balls are rounded: none may lie at the bound.
        balls = any(isinstance(stream.value, ap.Ball) for stream in streams)
        bounds = (0.37, 0.73, 1.21) if balls else (0.0, 0.5, 1.0, 2.0, 0.37)
        columns = st.integers(0, d - 1).map(lambda k: f"x{k}")
        sure = st.one_of(confidences, st.just(1.0))
        return st.builds(ap.DeltaWindow, columns, st.sampled_from(bounds), confidence=sure)
    durations = st.sampled_from(("0.5 seconds", "1 second", "1500 milliseconds", "2 seconds", "7 seconds", "1 hour"))
    return st.one_of(sizes, durations).map(ap.TumblingWindow)


@st.composite
def _uncertain(draw: DrawFn, streams: Sequence[ap.Stream]) -> ap.UncertainCountWindow:
    """Mostly exact, mostly without a cap."""
    # Weights are summed in doubles: whether a row is quite certain may be a matter of their order.
    summed = any(isinstance(stream.value, ap.Samples) and stream.value.weights is not None for stream in streams)
    confidence = draw(confidences if summed else st.one_of(confidences, st.just(1.0)))
    method = draw(st.sampled_from(("exact",) * 9 + ("refined-normal", "normal", "poisson")))
    # Of two rows none fits into a window of one: approximations do not know.
    size = draw(st.sampled_from((1, 1, 2, 2, 2, 3, 5) if method == "exact" else (2, 3, 5)))
    most = draw(st.sampled_from((None, None, None, size, size + 1, size + 3)))
    return ap.UncertainCountWindow(size, confidence, method=method, max_rows=most)


def ordered(table: pa.Table, stream: ap.Stream, d: int) -> pa.Table:
    """Without rows whose order among those of their time the twin does not know: a window that counts depends on it.

    These are rows of one nested key and another, and different rows of one key whose centres are the same, or means
    that differ by little more than their rounding.
    """
    rows, whole = naive.rows_of([table.to_pylist()], [stream], d)[0], table.to_pylist()
    unknown = set()
    for a, b in combinations(rows, 2):
        if (a.micros, a.group) != (b.micros, b.group) or whole[a.number] == whole[b.number]:
            continue
        if naive.plain(a.key) != naive.plain(b.key):
            known = not isinstance(a.key, dict)
        elif isinstance(stream.value, ap.Samples | ap.Position):
            known = abs(a.centre[0] - b.centre[0]) > 1e-6
        else:
            known = a.centre != b.centre
        if not known and a.number not in unknown:
            unknown.add(b.number)
    return table.take(pa.array([i for i in range(len(table)) if i not in unknown], pa.int64()))


@st.composite
def cases(
    draw: DrawFn,
    *,
    models: Sequence[str] = MODELS,
    dimensions: Sequence[int] = (1, 2, 3),
    bad: bool = True,
    everywhere: bool = False,
    most: int = 5,
    lateness: bool = False,
    windows: Sequence[str] = ("time",),
    margins: bool = False,
) -> Case:
    """A join of two to four streams, or of one with itself.

    ``everywhere`` keeps to key and time types that every engine has. With ``lateness`` streams get one.
    ``windows`` are the kinds of windows, as `_window` has them. With ``margins`` rows have some.
    """
    self_join = draw(st.integers(0, 3)) == 0
    d = draw(st.sampled_from(dimensions))
    n = 1 if self_join else draw(st.sampled_from((2, 2, 2, 3, 4)))
    usable = [model for model in models if (d == 1 or model != "line") and (d == 2 or model != "ellipse")]
    key_types = list(KEY_TYPES) if everywhere else [*KEY_TYPES, *_MORE_KEY_TYPES]
    time_types = list(TIME_TYPES) if everywhere else [*TIME_TYPES, *_MORE_TIME_TYPES]
    # All alike half of the time: only then Gaussians go their own way.
    alike = draw(st.booleans())
    first = draw(st.sampled_from(usable))
    key, time = draw(st.sampled_from(key_types)), draw(st.sampled_from(time_types))
    partitions = draw(st.sampled_from((0, 0, 0, 1, 2)))
    offset = draw(st.sampled_from((0.0, 0.0, 0.0, 1e7, -1e6)))
    grain = draw(st.sampled_from(("halves", "halves", "halves", "thirds", "any")))
    kind = draw(st.sampled_from(windows))
    around, earth = draw(st.sampled_from(_AROUND)), draw(st.sampled_from(("wgs84", "wgs84", "sphere")))
    # Half of the other windows decide alone: many rows that nearly all match.
    easy = kind != "time" and draw(st.booleans())
    least = most // 2 if easy else 0
    sizes: tuple[str | float, ...] = ("grow", "grow", 0.5, 0.0) if margins else (0.0,)
    shapes = [
        _Shape(
            model=first if alike else draw(st.sampled_from(usable)),
            d=d,
            key=key,
            time=time,
            existence=draw(st.booleans()) or (kind == "uncertain" and draw(st.integers(0, 3)) > 0),
            partitions=partitions,
            constant=draw(st.booleans()),
            offset=offset,
            coordinates=grain,
            points=draw(st.sampled_from((1, 2, 3, 5, 8))),
            named=True,
            window=kind,
            around=around,
            earth=earth,
            margin=draw(st.sampled_from(sizes)),
        )
        for _ in range(n)
    ]
    tables = [pa.Table.from_pylist(draw(_rows(shape, bad, least, most)), schema=shape.schema) for shape in shapes]
    names = [draw(st.sampled_from((None, f"stream {s}"))) for s in range(n)]
    streams = tuple(
        ap.Stream(
            None,
            key="id",
            time="ts",
            value=shape.value,
            existence="exists" if shape.existence else None,
            partition_by=("p0", "p1")[: shape.partitions],
            lateness=draw(st.sampled_from((0.0, 0.5, 1.0, 3.0))) if lateness else None,
            name=name,
            margin=shape.margin,
        )
        for shape, name in zip(shapes, names, strict=True)
    )
    if kind != "time":
        tables = [ordered(table, stream, d) for table, stream in zip(tables, streams, strict=True)]
    scale = 1000.0 if first in (*PLACES, *ALTITUDES) else 1.0
    epsilon: Any = scale * (100.0 if easy else draw(st.sampled_from(EPSILONS)))
    if first in ALTITUDES and not margins and draw(st.booleans()):
        epsilon = {"horizontal": epsilon, "vertical": 1e5 if easy else draw(st.sampled_from((0.0, 250.0, 650.0)))}
    return Case(
        tables=tuple(tables),
        streams=streams,
        d=d,
        epsilon=epsilon,
        probability=1e-6 if easy else draw(st.one_of(st.sampled_from(ALPHAS), st.floats(0.01, 1.0))),
        window=draw(_window(kind, streams, d)),
        self_join=self_join,
        different=draw(st.sampled_from((None, "tag"))) if self_join else None,
    )


@st.composite
def groups(draw: DrawFn, case: Case) -> Any:
    """An epsilon for each of some groups of a case's dimensions."""
    known = list(naive.dimension_names(case.streams[0].value, case.d))
    group = [draw(st.integers(0, case.d - 1)) for _ in known]
    own = [tuple(name for name, g in zip(known, group, strict=True) if g == k) for k in sorted(set(group))]
    bounds = (case.epsilon, case.epsilon, 0.5, 1.0, 2.0)
    return {
        names[0] if len(names) == 1 and draw(st.booleans()) else names: draw(st.sampled_from(bounds)) for names in own
    }


@st.composite
def wider(draw: DrawFn, /, **kinds: Any) -> Case:
    """A case of which some have margins, and others groups of dimensions."""
    case = draw(cases(**{"margins": draw(st.booleans()), **kinds}))
    planar = isinstance(case.epsilon, float) and not isinstance(case.streams[0].value, ap.Position)
    if planar and not any(stream.margin for stream in case.streams) and draw(st.booleans()):
        case = replace(case, epsilon=draw(groups(case)))
    return case


@st.composite
def measured(draw: DrawFn, /, **kinds: Any) -> Case:
    """A case with a metric, groups of dimensions, or units of their own, or all of them."""
    case = draw(cases(**kinds))
    known = list(naive.dimension_names(case.streams[0].value, case.d))
    how = draw(st.sets(st.sampled_from(("metric", "groups", "scale")), min_size=1))
    changes: dict[str, Any] = {}
    if "metric" in how:
        changes["metric"] = draw(st.sampled_from(("manhattan", "chebyshev")))
    if "groups" in how and not any(stream.margin for stream in case.streams):
        changes["epsilon"] = draw(groups(case))
    if "scale" in how:
        units = st.sampled_from((0.5, 2.0, 1.0, 4.0))
        changes["scale"] = {name: draw(units) for name in known if draw(st.booleans())} or {known[0]: 2.0}
    return replace(case, **changes)


# --- arrival ----------------------------------------------------------------------------------------------------


@st.composite
def pushes(draw: DrawFn, case: Case, *, late: bool = False, most: int = 1000) -> list[dict[int, list[int]]]:
    """All rows of a case, cut into at most so many pushes of row numbers by stream.

    Unless ``late``, every row comes within the lateness: in the order of time plus a delay of at most the least
    lateness of the call.
    """
    least = min(stream.lateness_micros for stream in case.streams)
    arrivals = []
    for s, (table, stream) in enumerate(zip(case.tables, case.streams, strict=True)):
        for i, time in enumerate(table["ts"].to_pylist()):
            micros = 0 if time is None else naive.micros_of(time, stream.unit) or 0
            delay = draw(st.integers(0, 8)) * least // 8
            arrivals.append((draw(st.integers(0, 100)) if late else micros + delay, draw(st.integers(0, 100)), s, i))
    cut: list[dict[int, list[int]]] = [{}]
    for _, _, s, i in sorted(arrivals):
        if draw(st.integers(0, 2)) == 0 and len(cut) < most:
            cut.append({})
        cut[-1].setdefault(s, []).append(i)
    return cut
