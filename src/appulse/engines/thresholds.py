"""Thresholds of a call: distances and probabilities, checked, and with the tolerance of rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from appulse.arguments import NAME, Kind, either, mapping, number, one_of, several
from appulse.errors import BadArgument, SwappedDimensions, nearest, warn
from appulse.model.meaning import real
from appulse.model.stream import stream_names
from appulse.model.uncertainty import MOST_DIMENSIONS, Exact, Position, is_dimension, names
from appulse.operators.plan import METRICS
from appulse.queries.condition import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream
    from appulse.operators.plan import Groups

TOLERANCE = 1e-9
MOST_COSINE = 2.0
# Its square has to be a double.
_DISTANCE = number(least=0.0, most=1e150)
_NAMED = either(NAME, several(NAME, "names of dimensions", least=1))
#: The least distance that is too far; of positions with an altitude it may be one along the Earth and one above, else
#: one for each group of dimensions.
Epsilon: TypeAlias = Annotated[
    float | Mapping[Any, float],
    either(
        _DISTANCE,
        mapping(
            _NAMED,
            _DISTANCE,
            "{'horizontal': ..., 'vertical': ...} or distances of groups of dimensions, {('x', 'y'): ..., 'z': ...}",
            least=1,
        ),
    ),
]
_CYLINDER = {"horizontal", "vertical"}


def _metric(value: Any) -> str:
    if value == "haversine":
        raise BadArgument("metric='haversine': give value=ap.Position(lat, lon, earth='sphere'), without metric=.")
    return str(_METRICS.take(value))


#: 1 less the cosine of the angle: of unit vectors that is half the square of their Euclidean distance.
COSINE = "cosine"
_METRICS = one_of(*METRICS, COSINE)
#: How distances of coordinates are measured.
Metric: TypeAlias = Annotated[str, Kind(_METRICS.wanted, _metric)]
#: Those by which a nearest row is looked for.
NearestMetric: TypeAlias = Annotated[str, one_of("euclidean", COSINE)]
#: By what dimensions are divided.
Scale: TypeAlias = Annotated[
    Mapping[str, float],
    mapping(NAME, number(above=0.0, most=1e150), "units by dimension, {'x': 1.5, 'celsius': 0.1}"),
]


def within_tolerance(probability: float) -> float:
    """What a probability has to reach; thresholds no greater than the tolerance stand as they are."""
    return probability - TOLERANCE if probability > 2 * TOLERANCE else probability


def thresholds(epsilon: float | Mapping[Any, float], streams: Sequence[Stream]) -> tuple[float, float | None]:
    """Epsilon, and a vertical one where there are two."""
    if not isinstance(epsilon, Mapping):
        return epsilon, None
    if set(epsilon) != _CYLINDER:
        raise BadArgument(f"epsilon={dict(epsilon)!r}: give 'horizontal' and 'vertical', or one number.")
    if not all(isinstance(s.value, Position) and s.value.altitude is not None for s in streams):
        raise BadArgument(
            "epsilon={'horizontal': ..., 'vertical': ...} needs altitudes: give every stream "
            "value=ap.Position(lat, lon, altitude=...), or one number for epsilon."
        )
    return epsilon["horizontal"], epsilon["vertical"]


def check_margins(streams: Sequence[Stream], *, several: bool) -> bool:
    """Whether rows have margins; raise `BadArgument` where there are ``several`` epsilons that they may add to."""
    margins = any(stream.margin != 0.0 for stream in streams)
    if margins and several:
        raise BadArgument(
            "Stream(margin=) is added to one epsilon, and the call has several. Leave it out, or give one number for "
            "epsilon."
        )
    return margins


def groups_of(epsilon: Any, streams: Sequence[Stream], d: int | None) -> Groups:
    """Dimensions by group with their epsilons, in the order of their first ones; none where there is one for all."""
    if not isinstance(epsilon, Mapping) or any(isinstance(stream.value, Position) for stream in streams):
        return ()
    known = {name for stream in streams for name in names(stream.value, d or MOST_DIMENSIONS)}
    if set(epsilon) == _CYLINDER and not _CYLINDER & known:
        return ()
    named = [((key,) if isinstance(key, str) else key, distance) for key, distance in epsilon.items()]
    groups = [(tuple(_dimension(name, "epsilon", streams, d) for name in own), distance) for own, distance in named]
    every = [k for own, _ in groups for k in own]
    for k in every:
        if every.count(k) > 1:
            twice = names(streams[0].value, max(every) + 1)[k]
            raise BadArgument(f"epsilon= names {twice!r} twice. Each dimension belongs to one group.")
    left = set(range(max(every) + 1 if d is None else d)) - set(every)
    if left:
        missing = ", ".join(repr(names(streams[0].value, d or max(every) + 1)[k]) for k in sorted(left))
        raise BadArgument(f"epsilon= leaves out {missing}. Every dimension belongs to one group: give it a distance.")
    return tuple(sorted((tuple(sorted(own)), distance) for own, distance in groups))


def units_of(scale: Mapping[str, float] | None, streams: Sequence[Stream], d: int | None) -> tuple[float, ...] | None:
    """By what each dimension is divided; None where nothing is."""
    if not scale:
        return None
    if any(isinstance(stream.value, Position) for stream in streams):
        raise BadArgument("scale= divides coordinates, and positions have none: they are in metres. Leave it out.")
    if d is None:
        raise BadArgument(
            "scale= needs to know the dimensions, and the columns do not say which. Name them: "
            "ap.Samples(..., names=['x', 'y'])."
        )
    found = [1.0] * d
    for name, unit in scale.items():
        found[_dimension(name, "scale", streams, d)] = unit
    return None if all(unit == 1.0 for unit in found) else tuple(found)


def check_metric(metric: str, streams: Sequence[Stream]) -> None:
    """Raise `BadArgument` where values have no coordinates to measure."""
    if metric == COSINE and not all(isinstance(stream.value, Exact) for stream in streams):
        raise BadArgument(
            "metric='cosine' goes by the direction of rows without error: give every stream value=ap.Exact(...)."
        )
    if metric != "euclidean" and any(isinstance(stream.value, Position) for stream in streams):
        raise BadArgument(
            f"metric={metric!r} is of coordinates, and positions have none: they are metres apart along the Earth. "
            "Leave it out."
        )


def as_directions(epsilon: Any, streams: Sequence[Stream], scale: Any) -> tuple[float, float, str]:
    """Epsilon, and which distance of unit vectors it is, by which metric; `BadArgument` where it cannot be one."""
    if isinstance(epsilon, Mapping) or scale or any(stream.margin != 0.0 for stream in streams):
        raise BadArgument(
            "metric='cosine' takes one epsilon for all pairs and dimensions. Leave out scale=, margins and groups."
        )
    if epsilon > MOST_COSINE:
        raise BadArgument(f"epsilon={epsilon:g} is above {MOST_COSINE:g}, the cosine distance of opposite directions.")
    return float(epsilon), math.sqrt(2.0 * epsilon), "euclidean"


def _dimension(name: str, argument: str, streams: Sequence[Stream], d: int | None) -> int:
    """Which dimension a name means: the same in every stream that has it."""
    known = [names(stream.value, d or MOST_DIMENSIONS) for stream in streams]
    found = {own.index(name) for own in known if name in own}
    if not found:
        listed = list(dict.fromkeys(one for own in known for one in own[: d or 3]))
        raise BadArgument(
            f"{argument}= names {name!r}, which is not a dimension of the values.{nearest(name, listed)} "
            f"They have: {', '.join(listed)}."
        )
    if len(found) > 1:
        raise BadArgument(f"{argument}= names {name!r}, which is another dimension in each stream. Rename it in one.")
    return found.pop()


def swapped_dimensions(streams: Sequence[Stream]) -> str:
    """The first dimension that two streams name at different places, as a message; empty if there is none."""
    listed = enumerate(names(stream.value, MOST_DIMENSIONS) for stream in streams)
    for (i, own), (j, others) in combinations(listed, 2):
        at = {name: k for k, name in enumerate(others)}
        for k, name in enumerate(own):
            if at.get(name, k) != k:
                one, other = (stream_names(streams)[side] for side in (i, j))
                return (
                    f"{name!r} is dimension {k + 1} of stream {one!r} and dimension {at[name] + 1} of {other!r}. "
                    "Dimensions are compared by their place, not by their name. Name them in one order; if these are "
                    "meant to be compared, rename the columns of one stream."
                )
    return ""


def warn_swapped_dimensions(streams: Sequence[Stream]) -> None:
    """Warn where two streams of a call name a dimension at different places."""
    if text := swapped_dimensions(streams):
        warn(text, SwappedDimensions)


def of_epsilon(epsilon: float, vertical: float | None) -> Meaning | float | str:
    """Epsilon in plain JSON."""
    return real(epsilon) if vertical is None else {"horizontal": real(epsilon), "vertical": real(vertical)}


def of_groups(groups: Groups, named: Sequence[str]) -> list[Any]:
    """Epsilons of groups in plain JSON, by the names of dimensions."""
    return [[[named[k] for k in own], real(distance)] for own, distance in groups]


def check_places(streams: Sequence[Stream], labels: Sequence[str]) -> None:
    """Refuse conditions over coordinates that are uncertain: what they leave of a position is no position."""
    for stream, name in zip(streams, labels, strict=True):
        if not isinstance(stream.value, Position):
            continue
        read = [column for text in stream.where for column in parse(text).columns]
        named = [column for column in read if is_dimension(stream.value, column)]
        if named:
            raise BadArgument(
                f"A filter of stream {name!r} names {named[0]!r}, which is uncertain: what it leaves of a position is "
                "no position, and has no distance. Filter the frame by that column, before the stream is made."
            )
