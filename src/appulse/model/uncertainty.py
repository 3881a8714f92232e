"""What a row means: which columns hold an object, and how sure they are of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from typing import Annotated, TypeAlias

from appulse.arguments import NAME, NOT_NEGATIVE, REAL, Kind, Name, Names, checked, either, one_of, several, whole
from appulse.errors import BadArgument
from appulse.model.brief import brief

#: A block of objects has one byte for the number of dimensions.
MOST_DIMENSIONS = 255
#: Dimensions up to which pairs of normal rows of any covariances need no samples.
MOST_IN_CLOSED_FORM = 3
_SPREAD = either(Kind("a column name", NAME.take), Kind("a number that is finite and at least 0", NOT_NEGATIVE.take))
_Spread: TypeAlias = Annotated[str | float, _SPREAD]
_Sigma: TypeAlias = Annotated[float, NOT_NEGATIVE]
_Sigmas: TypeAlias = Annotated[Sequence[float], several(NOT_NEGATIVE, "numbers, one per column")]
_Spreads: TypeAlias = Annotated[Sequence[str | float], several(_SPREAD, "one of these per column")]
_Shape: TypeAlias = Annotated[
    Sequence[str | float],
    several(either(Kind("a column name", NAME.take), Kind("a finite number", REAL.take)), "one of these per entry"),
]
_Points: TypeAlias = Annotated[int, whole(1, 100_000, of="points")]


class Form(IntEnum):
    """How objects of a model are held: a point, its samples, or a centre with a spread."""

    POINT = 0
    SAMPLES = 1
    GAUSSIAN = 2
    BALL = 3


@checked
@dataclass(frozen=True, init=False)
class Exact:
    """A position without error: d numeric columns, or one column of vectors (lists of d numbers).

    Arguments:
    * ``columns``: the names of d numeric columns, in the unit of epsilon, or of one column of lists. Vectors have up to
      4,096 numbers, equally many in all rows; others are rejects.

    Pass it as ``Stream(value=)``. A column name alone is the same.

    Raises `BadArgument` for a wrong argument, such as a column named twice.

    >>> import appulse as ap
    >>> ap.Exact("x", "y").columns, ap.Exact("embedding").columns
    (('x', 'y'), ('embedding',))
    """

    columns: tuple[str, ...]

    def __init__(self, *columns: Name) -> None:
        object.__setattr__(self, "columns", _columns("Exact", columns))

    __repr__ = brief
    form = Form.POINT


@dataclass(frozen=True, init=False)
class Vectors(Exact):
    """What `Exact` means where its one column holds lists: positions of as many coordinates as the lists have."""

    def __init__(self, column: str) -> None:
        object.__setattr__(self, "columns", (column,))


@checked
@dataclass(frozen=True)
class Samples:
    """Weighted samples: each row is one of several positions, each with a probability.

    Arguments:
    * ``column``: of list<list<double>> (list<double> in one dimension): n samples of d coordinates.
    * ``weights``: a column of list<double>, the n probabilities. They sum to the object's existence probability, at
      most 1. None: equal weights.
    * ``names``: the dimensions' names in conditions and metrics; they fix the number of dimensions. None: the column's
      name, with ``_1``, ``_2``, ... where there are several dimensions.

    Pass it as ``Stream(value=)``.

    Raises `BadArgument` for a wrong argument.

    >>> rows = pa.table({"id": [1, 2], "t": [0, 0], "at": [[0.0, 3.0], [0.5]], "w": [[0.6, 0.3], [1.0]]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Samples("at", weights="w", names=("x",)))
    >>> ap.self_join(stream, epsilon=1, probability=0.5, window=0)["probability"].to_pylist()
    [0.6]
    """

    column: Name
    weights: Name | None = None
    names: Names | None = None
    # The columns that were filled by an imputer: they are read for the reasons of rejects.
    filled_from: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    __repr__ = brief
    form = Form.SAMPLES

    def __post_init__(self) -> None:
        if self.names is not None:
            _columns("Samples(names=)", tuple(self.names))


@checked
@dataclass(frozen=True, init=False)
class Gaussian:
    """A normal error around d columns.

    Give one of ``sigma``, ``covariance`` and ``ellipse``, each part a column or a number.

    Arguments:
    * ``columns``: the names of the d numeric columns of the mean.
    * ``sigma``: one standard deviation for all dimensions, or one per dimension, in the unit of the columns.
    * ``covariance``: the upper triangle of the covariance matrix, row by row, such as ``("sxx", "sxy", "syy")``. A
      matrix that is not positive semidefinite is a reject.
    * ``ellipse``: in two dimensions, the two semi-axes at one standard deviation, and the angle of the first of them in
      degrees, clockwise from the second dimension (from north, where the dimensions are east and north).
    * ``samples``: the number of deterministic points where samples are needed. Pairs are answered in closed form where
      all dimensions share one sigma, and by quadrature to 1e-9 in up to three dimensions, else at these points.

    Pass it as ``Stream(value=)``.

    Raises `BadArgument` for a wrong argument, such as two of the three errors, or none.

    >>> import appulse as ap
    >>> ap.Gaussian("x", "y", ellipse=("major", "minor", "angle")).columns
    ('x', 'y')
    """

    columns: tuple[str, ...]
    sigma: str | float | tuple[str | float, ...] | None
    covariance: tuple[str | float, ...] | None
    ellipse: tuple[str | float, ...] | None
    samples: int

    __repr__ = brief
    form = Form.GAUSSIAN

    def __init__(
        self,
        *columns: Name,
        sigma: _Spread | _Spreads | None = None,
        covariance: _Shape | None = None,
        ellipse: _Shape | None = None,
        samples: _Points = 64,
    ) -> None:
        d = len(_columns("Gaussian", columns))
        errors = {"sigma": sigma, "covariance": covariance, "ellipse": ellipse}
        given = [name for name, error in errors.items() if error is not None]
        if len(given) != 1:
            raise BadArgument(
                f"Gaussian got {' and '.join(given) or 'no error'}. Give one of sigma=, covariance= and ellipse=."
            )
        if isinstance(sigma, tuple) and len(sigma) != d:
            raise BadArgument(f"Gaussian has {d} columns and {len(sigma)} sigmas. Give one sigma, or one per column.")
        if covariance is not None and len(covariance) != d * (d + 1) // 2:
            raise BadArgument(
                f"Gaussian has {d} columns and {len(covariance)} entries of a covariance. Give the "
                f"{d * (d + 1) // 2} of its upper triangle, row by row."
            )
        if ellipse is not None and d != 2:
            raise BadArgument(f"Gaussian(ellipse=) is an error of two dimensions, and this has {d}. Give covariance=.")
        _check_ellipse("Gaussian", ellipse)
        one = sigma[0] if isinstance(sigma, tuple) and len(set(sigma)) == 1 else sigma
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "sigma", one)
        object.__setattr__(self, "covariance", covariance)
        object.__setattr__(self, "ellipse", ellipse)
        object.__setattr__(self, "samples", samples)

    @property
    def errors(self) -> tuple[str | float, ...]:
        """What says how large the error is, in the order of its argument."""
        found = self.sigma if self.sigma is not None else self.covariance or self.ellipse or ()
        return found if isinstance(found, tuple) else (found,)

    @property
    def isotropic(self) -> bool:
        """Whether all dimensions share one deviation."""
        return self.sigma is not None and not isinstance(self.sigma, tuple)


@checked
@dataclass(frozen=True, init=False)
class Ball:
    """A uniform error in a ball around d columns.

    Arguments:
    * ``columns``: the names of the d numeric columns of the centre.
    * ``radius``: a column or a number, in the unit of the columns; 0 is an exact point.
    * ``samples``: the number of deterministic points that represent the ball.

    Pass it as ``Stream(value=)``.

    Raises `BadArgument` for a wrong argument.

    >>> rows = pa.table({"id": [1, 2], "t": [0, 0], "x": [0.0, 3.0], "y": [0.0, 0.0]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Ball("x", "y", radius=1.0))
    >>> ap.self_join(stream, epsilon=5, probability=1, window=0).num_rows
    1
    """

    columns: tuple[str, ...]
    radius: str | float
    samples: int

    __repr__ = brief
    form = Form.BALL

    def __init__(self, *columns: Name, radius: _Spread, samples: _Points = 64) -> None:
        object.__setattr__(self, "columns", _columns("Ball", columns))
        object.__setattr__(self, "radius", radius)
        object.__setattr__(self, "samples", samples)


@checked
@dataclass(frozen=True, init=False)
class Incomplete:
    """d numeric columns, some of them missing (null or NaN) in some rows; needs an imputer to fill them.

    Arguments:
    * ``columns``: the names of the d numeric columns, the attributes. A row that lacks all of them is a reject.
    * ``sigma``: the standard deviation of a normal error of each attribute, known or filled: one number, or one per
      column. If it is above 0, a row is represented by at least 64 deterministic points.

    Pass it as ``Stream(value=)``.

    Raises `BadArgument` for a wrong argument.

    Ren et al. 2019, Definition 2.1.

    >>> known = pa.table({"x": [1.0, 2.0, 3.0], "y": [10.0, 20.0, 30.0]})
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.NearestImputer(known, k=1)).frame["imputed"].to_pylist()
    [[[2.1, 20.0]]]
    """

    columns: tuple[str, ...]
    sigma: float | tuple[float, ...]

    def __init__(self, *columns: Name, sigma: _Sigma | _Sigmas = 0.0) -> None:
        d = len(_columns("Incomplete", columns))
        if isinstance(sigma, tuple | list) and len(sigma) != d:
            raise BadArgument(f"Incomplete has {d} columns and {len(sigma)} sigmas. Give one sigma, or one per column.")
        one = tuple(sigma) if isinstance(sigma, tuple | list) else sigma
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "sigma", one)

    __repr__ = brief
    form = Form.SAMPLES

    @property
    def deviations(self) -> tuple[float, ...]:
        """The standard deviation of each attribute's error."""
        return self.sigma if isinstance(self.sigma, tuple) else (self.sigma,) * len(self.columns)


#: Errors of positions are normal in the plane tangent to the Earth, which only means something where they are small; on
#: the sky, in arc seconds, where a tail does not go around it.
MOST_ERROR = 100_000.0


@checked
@dataclass(frozen=True)
class Position:
    """A position on Earth, in degrees of latitude and longitude, or in the sky.

    Arguments:
    * ``lat, lon``: the columns of latitude and longitude, in degrees. Longitudes are taken modulo 360; a latitude
      outside [-90, 90] is a reject.
    * ``sigma``: the standard deviation of the error in each horizontal direction, normal in the plane tangent to the
      Earth, in metres; a column or a number. 0 is exact, more than 100 km (on the sky 100,000 arc seconds, 27.8
      degrees) a reject.
    * ``ellipse``: takes the place of ``sigma`` where errors differ by direction: the two semi-axes in metres at one
      standard deviation, and the angle of the first of them in degrees, clockwise from north; each a column or a
      number. At a pole, the angle counts from the meridian of Greenwich.
    * ``altitude``: a column of metres above the ellipsoid. Distances are then ``hypot(geodesic, difference of
      altitudes)``.
    * ``altitude_sigma``: the standard deviation of the altitude's error, in metres; a column or a number.
    * ``earth``: ``"wgs84"``: distances are geodesics on the WGS 84 ellipsoid, in metres. ``"sphere"``: great circles of
      radius 6,371,008.8 m. ``"sky"``: the celestial sphere: ``lat`` is a declination and ``lon`` a right ascension, in
      degrees, and distances, deviations and semi-axes are in arc seconds; an ellipse is turned from north to east.
    * ``geography``: takes the place of ``lat`` and ``lon``: a column of points of WGS 84, longitude first, as WKB, WKT,
      GeoArrow, Spark's GEOGRAPHY or GEOMETRY, or shapely geometries in pandas. Conditions over positions with an error
      name the coordinates ``geom_lat`` and ``geom_lon``, after a column ``geom``.

    Pass it as ``Stream(value=)``.

    Raises `BadArgument` for a wrong argument, such as a number above 100,000 for an error, and for arguments that
    exclude each other.

    >>> import appulse as ap
    >>> ap.Position("lat", "lon", sigma="accuracy").columns
    ('lat', 'lon')
    >>> ap.Position(geography="geom").columns
    ('geom_lat', 'geom_lon')
    """

    lat: Name = ""
    lon: Name = ""
    sigma: _Spread = 0.0
    ellipse: _Shape | None = None
    altitude: Name | None = None
    altitude_sigma: _Spread = 0.0
    earth: Annotated[str, one_of("wgs84", "sphere", "sky")] = "wgs84"
    geography: Name | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.geography is not None:
            own = f"{self.geography}_lat", f"{self.geography}_lon"
            if (self.lat, self.lon) not in (("", ""), own):
                raise BadArgument("Position got columns of coordinates and geography=. Give one of them.")
            object.__setattr__(self, "lat", own[0])
            object.__setattr__(self, "lon", own[1])
        elif not (self.lat and self.lon):
            raise BadArgument("Position names no place. Give columns, Position('lat', 'lon'), or geography='geom'.")
        _columns("Position", self.columns)
        if self.altitude is not None and self.earth == "sky":
            raise BadArgument("Position(altitude=) has no meaning on the sky. Leave it out, or leave out earth='sky'.")
        if self.altitude is None and self.altitude_sigma != 0.0:
            raise BadArgument("Position(altitude_sigma=) is the error of an altitude. Name its column by altitude=.")
        if self.ellipse is not None and self.sigma != 0.0:
            raise BadArgument("Position got sigma and ellipse. Give one of them.")
        _check_ellipse("Position", self.ellipse)
        axes = [("ellipse", axis) for axis in (self.ellipse or ())[:2]]
        for name, sigma in (("sigma", self.sigma), ("altitude_sigma", self.altitude_sigma), *axes):
            if isinstance(sigma, float) and sigma > MOST_ERROR:
                unit, above = "metres", "where a plane is not a model of the Earth"
                if self.earth == "sky":
                    unit, above = "arc seconds", "27.8 degrees, and the tails of a larger error go around the sky"
                raise BadArgument(
                    f"Position({name}={sigma:g}) is above {MOST_ERROR:g} {unit}, {above}. Give the standard deviation "
                    f"in {unit}."
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the coordinates."""
        return (self.lat, self.lon) if self.altitude is None else (self.lat, self.lon, self.altitude)

    @property
    def errors(self) -> tuple[str | float, ...]:
        """What says how large errors are: sigma or the ellipse, and the deviation of the altitude if there is one."""
        flat = (self.sigma,) if self.ellipse is None else tuple(self.ellipse)
        return flat if self.altitude is None else (*flat, self.altitude_sigma)

    @property
    def exact(self) -> bool:
        """Whether no position has an error."""
        return self.ellipse is None and not any(self.errors)

    @property
    def form(self) -> Form:
        """How positions are held."""
        return Form.POINT if self.exact else Form.GAUSSIAN


#: Models of objects as they are held, once what was missing is filled.
Held: TypeAlias = Exact | Samples | Gaussian | Ball | Position
Model: TypeAlias = Held | Incomplete


def filled_samples(column: str, weights: str, model: Incomplete) -> Samples:
    """What rows of a model are once they are filled."""
    samples = Samples(column, weights, names=model.columns)
    object.__setattr__(samples, "filled_from", model.columns)
    return samples


def dimensions(model: Model) -> int | None:
    """Number of dimensions, where the model alone shows it."""
    if isinstance(model, Samples):
        return None if model.names is None else len(model.names)
    if isinstance(model, Vectors):
        return None
    if isinstance(model, Position):
        return 1 + len(model.columns)  # in Earth-centred coordinates
    return len(model.columns)


def check_dimensions(model: str, d: int) -> None:
    """Raise `BadArgument` where there are more dimensions than a join takes."""
    if d > MOST_DIMENSIONS:
        raise BadArgument(f"{model} has {d} dimensions. At most {MOST_DIMENSIONS} are supported.")


def names(model: Model, d: int) -> tuple[str, ...]:
    """Names of the ``d`` dimensions."""
    if isinstance(model, Vectors):
        return tuple(f"{model.columns[0]}_{k + 1}" for k in range(d))
    if not isinstance(model, Samples):
        return model.columns
    if model.names is not None:
        return tuple(model.names)
    return (model.column,) if d == 1 else _numbered(model.column)[:d]


@cache
def _numbered(column: str) -> tuple[str, ...]:
    """Names of dimensions that have none of their own."""
    return tuple(f"{column}_{k + 1}" for k in range(MOST_DIMENSIONS))


def is_dimension(model: Model, name: str) -> bool:
    """Whether ``name`` means a coordinate of an uncertain value, rather than a column."""
    if isinstance(model, Samples) and model.names is None:
        return name == model.column or name in _numbered(model.column)
    return not is_certain(model) and name in names(model, 1)


def is_certain(model: Model) -> bool:
    """Whether rows have no error, so that their coordinates are columns like others."""
    return isinstance(model, Exact) or (isinstance(model, Position) and model.exact)


def in_closed_form(model: Model) -> bool:
    """Whether a pair of rows of such models needs no samples."""
    if isinstance(model, Gaussian):
        return model.isotropic or len(model.columns) <= MOST_IN_CLOSED_FORM
    return isinstance(model, Exact | Position)


def is_round(model: Model) -> bool:
    """Whether every error is the same in all directions, or there is none."""
    if isinstance(model, Position):
        return model.ellipse is None and model.altitude is None
    return isinstance(model, Exact) or (isinstance(model, Gaussian) and model.isotropic)


def pairs_in_closed_form(one: Model, other: Model) -> bool:
    """Whether pairs of these need no samples, and are more than two points."""
    return in_closed_form(one) and in_closed_form(other) and not (is_certain(one) and is_certain(other))


def read_from(model: Model, names: Sequence[str]) -> Model:
    """The model as rows of these columns have it: of what filled them, they may have the samples alone."""
    if isinstance(model, Samples) and not set(model.filled_from) <= set(names):
        return replace(model)
    return model


def columns(model: Model) -> tuple[str, ...]:
    """Every column the model reads."""
    if isinstance(model, Samples):
        return (model.column, *(() if model.weights is None else (model.weights,)), *model.filled_from)
    if isinstance(model, Gaussian):
        return model.columns + tuple(s for s in model.errors if isinstance(s, str))
    if isinstance(model, Ball):
        return model.columns + ((model.radius,) if isinstance(model.radius, str) else ())
    if isinstance(model, Position):
        given = model.columns if model.geography is None else (model.geography, *model.columns[2:])
        return given + tuple(s for s in model.errors if isinstance(s, str))
    return model.columns


def _check_ellipse(model: str, ellipse: Sequence[str | float] | None) -> None:
    if ellipse is None:
        return
    if len(ellipse) != 3:
        raise BadArgument(
            f"{model}(ellipse=) has {len(ellipse)} entries. Give two semi-axes and the angle of the first in degrees."
        )
    if any(isinstance(axis, float) and axis < 0.0 for axis in ellipse[:2]):
        raise BadArgument(f"{model}(ellipse={tuple(ellipse)!r}) has a negative axis. Give semi-axes of at least 0.")


def _columns(model: str, given: tuple[str, ...]) -> tuple[str, ...]:
    if not given:
        raise BadArgument(f"{model} got no columns. Name at least one column, e.g. Exact('x', 'y').")
    if len(set(given)) < len(given):
        raise BadArgument(f"{model} names a column twice: {given!r}. Each dimension needs its own column.")
    check_dimensions(model, len(given))
    return given
