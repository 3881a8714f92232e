"""What a row means: which columns hold an object, and how sure they are of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TypeAlias

from appulse.errors import BadArgument

#: A block of objects has one byte for the number of dimensions.
MOST_DIMENSIONS = 255


class Form(IntEnum):
    """How objects of a model are held: a point, its samples, or a centre with a spread."""

    POINT = 0
    SAMPLES = 1
    GAUSSIAN = 2
    BALL = 3


@dataclass(frozen=True, init=False)
class Exact:
    """A position without error: d numeric columns, one sample."""

    columns: tuple[str, ...]

    def __init__(self, *columns: str) -> None:
        object.__setattr__(self, "columns", _columns("Exact", columns))

    form = Form.POINT


@dataclass(frozen=True)
class Samples:
    """Weighted samples: ``column`` of list<list<double>> (list<double> in one dimension), ``weights`` of list<double>.

    Equal weights if ``weights`` is omitted. Weights sum to the object's existence probability, at most 1. ``names``
    are the dimensions' names in conditions and metrics, and fix their number.
    """

    column: str
    weights: str | None = None
    names: tuple[str, ...] | None = None

    form = Form.SAMPLES

    def __post_init__(self) -> None:
        _columns("Samples", (self.column,))
        if self.names is not None:
            object.__setattr__(self, "names", _columns("Samples(names=)", tuple(self.names)))


@dataclass(frozen=True, init=False)
class Gaussian:
    """Normal noise around d columns; ``sigma`` a column, a number, or one of these per dimension.

    Pairs of isotropic Gaussians are answered in closed form, others at ``samples`` deterministic points.
    """

    columns: tuple[str, ...]
    sigma: str | float | tuple[str | float, ...]
    samples: int

    form = Form.GAUSSIAN

    def __init__(
        self, *columns: str, sigma: str | float | tuple[str | float, ...] | list[str | float], samples: int = 64
    ) -> None:
        object.__setattr__(self, "columns", _columns("Gaussian", columns))
        object.__setattr__(self, "samples", _points("Gaussian", samples))
        if isinstance(sigma, tuple | list):
            if len(sigma) != len(columns):
                raise BadArgument(
                    f"Gaussian has {len(columns)} columns and {len(sigma)} sigmas. Give one sigma, or one per column."
                )
            spread = tuple(_spread("sigma", s) for s in sigma)
            object.__setattr__(self, "sigma", spread[0] if len(set(spread)) == 1 else spread)
        else:
            object.__setattr__(self, "sigma", _spread("sigma", sigma))

    @property
    def isotropic(self) -> bool:
        """Whether all dimensions share one deviation."""
        return not isinstance(self.sigma, tuple)


@dataclass(frozen=True, init=False)
class Ball:
    """Uniform in a ball around d columns; ``radius`` a column or a number; ``samples`` deterministic points."""

    columns: tuple[str, ...]
    radius: str | float
    samples: int

    form = Form.BALL

    def __init__(self, *columns: str, radius: str | float, samples: int = 64) -> None:
        object.__setattr__(self, "columns", _columns("Ball", columns))
        object.__setattr__(self, "radius", _spread("radius", radius))
        object.__setattr__(self, "samples", _points("Ball", samples))


@dataclass(frozen=True, init=False)
class Incomplete:
    """d numeric columns, some of them missing (null or NaN) in some rows; needs an imputer, which makes samples of it.

    A row that lacks all of them is a reject. Ren et al. 2019, Definition 2.1.
    """

    columns: tuple[str, ...]

    def __init__(self, *columns: str) -> None:
        object.__setattr__(self, "columns", _columns("Incomplete", columns))

    form = Form.SAMPLES


#: Models of objects as they are held, once what was missing is filled.
Held: TypeAlias = Exact | Samples | Gaussian | Ball
Model: TypeAlias = Held | Incomplete


def dimensions(model: Model) -> int | None:
    """Number of dimensions, where the model alone tells it."""
    if isinstance(model, Samples):
        return None if model.names is None else len(model.names)
    return len(model.columns)


def check_dimensions(model: str, d: int) -> None:
    """Raise `BadArgument` where there are more dimensions than a join takes."""
    if d > MOST_DIMENSIONS:
        raise BadArgument(f"{model} has {d} dimensions. At most {MOST_DIMENSIONS} are supported.")


def names(model: Model, d: int) -> tuple[str, ...]:
    """Names of the ``d`` dimensions."""
    if not isinstance(model, Samples):
        return model.columns
    if model.names is not None:
        return model.names
    return (model.column,) if d == 1 else _numbered(model.column)[:d]


@cache
def _numbered(column: str) -> tuple[str, ...]:
    """Names of dimensions that have none of their own."""
    return tuple(f"{column}_{k + 1}" for k in range(MOST_DIMENSIONS))


def is_dimension(model: Model, name: str) -> bool:
    """Whether ``name`` means a coordinate of an uncertain value, rather than a column."""
    if isinstance(model, Samples) and model.names is None:
        return name == model.column or name in _numbered(model.column)
    return not isinstance(model, Exact) and name in names(model, 1)


def columns(model: Model) -> tuple[str, ...]:
    """Every column the model reads."""
    if isinstance(model, Samples):
        return (model.column,) if model.weights is None else (model.column, model.weights)
    if isinstance(model, Gaussian):
        spread = model.sigma if isinstance(model.sigma, tuple) else (model.sigma,)
        return model.columns + tuple(s for s in spread if isinstance(s, str))
    if isinstance(model, Ball):
        return model.columns + ((model.radius,) if isinstance(model.radius, str) else ())
    return model.columns


def _columns(model: str, given: tuple[str, ...]) -> tuple[str, ...]:
    if not given or not all(isinstance(c, str) and c for c in given):
        raise BadArgument(f"{model} got columns {given!r}. Name at least one column, e.g. Exact('x', 'y').")
    if len(set(given)) < len(given):
        raise BadArgument(f"{model} names a column twice: {given!r}. Each dimension needs its own column.")
    check_dimensions(model, len(given))
    return given


def _points(model: str, samples: int) -> int:
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < 1:
        raise BadArgument(f"{model}(samples={samples!r}): give a whole number of points, at least 1.")
    return samples


def _spread(what: str, value: object) -> str | float:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    raise BadArgument(f"{what}={value!r}: give a column name or a number that is finite and at least 0.")
