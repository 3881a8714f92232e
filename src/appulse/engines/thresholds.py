"""Thresholds of a call: distances and probabilities, checked, and with the tolerance of rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, TypeAlias

from appulse.arguments import either, mapping, number, one_of
from appulse.errors import BadArgument
from appulse.model.meaning import real
from appulse.model.uncertainty import Position, is_dimension
from appulse.queries.condition import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream

TOLERANCE = 1e-9
# Its square has to be a double.
_DISTANCE = number(least=0.0, most=1e150)
#: The least distance that is too far; of positions with an altitude it may be one along the Earth and one above.
Epsilon: TypeAlias = Annotated[
    float | Mapping[str, float],
    either(_DISTANCE, mapping(one_of("horizontal", "vertical"), _DISTANCE, "{'horizontal': ..., 'vertical': ...}")),
]


def within_tolerance(probability: float) -> float:
    """What a probability has to reach; thresholds no greater than the tolerance stand as they are."""
    return probability - TOLERANCE if probability > 2 * TOLERANCE else probability


def thresholds(epsilon: float | Mapping[str, float], streams: Sequence[Stream]) -> tuple[float, float | None]:
    """Epsilon, and a vertical one where there are two."""
    if not isinstance(epsilon, Mapping):
        return epsilon, None
    if set(epsilon) != {"horizontal", "vertical"}:
        raise BadArgument(f"epsilon={dict(epsilon)!r}: give 'horizontal' and 'vertical', or one number.")
    if not all(isinstance(s.value, Position) and s.value.altitude is not None for s in streams):
        raise BadArgument(
            "epsilon={'horizontal': ..., 'vertical': ...} needs altitudes: give every stream "
            "value=ap.Position(lat, lon, altitude=...), or one number for epsilon."
        )
    return epsilon["horizontal"], epsilon["vertical"]


def of_epsilon(epsilon: float, vertical: float | None) -> Meaning | float | str:
    """Epsilon in plain JSON."""
    return real(epsilon) if vertical is None else {"horizontal": real(epsilon), "vertical": real(vertical)}


def check_places(streams: Sequence[Stream], names: Sequence[str]) -> None:
    """Refuse conditions over coordinates that are uncertain: what they leave of a position is no position."""
    for stream, name in zip(streams, names, strict=True):
        if not isinstance(stream.value, Position):
            continue
        read = [column for text in stream.where for column in parse(text).columns]
        named = [column for column in read if is_dimension(stream.value, column)]
        if named:
            raise BadArgument(
                f"A filter of stream {name!r} names {named[0]!r}, which is uncertain: what it leaves of a position is "
                "no position, and has no distance. Filter the frame by that column, before the stream is made."
            )
