"""What every table of a job file is made of: no unknown keys, no silent conversion from one type to another."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from appulse.errors import JobError
from appulse.model.stream import ahead_micros
from appulse.model.times import duration

__all__ = [
    "Ahead",
    "CallTable",
    "Duration",
    "GroupedEpsilon",
    "Metric",
    "Number",
    "OneOrMore",
    "Place",
    "Scale",
    "Settings",
    "Table",
    "Text",
    "is_secret",
    "options_of",
]


# Names of options that no job file should spell out.
_SECRET = re.compile("password|secret|jaas|token", re.IGNORECASE)


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CallTable(Table):
    """The arguments of a call, and what ``_apart`` names."""

    _apart: ClassVar[tuple[str, ...]] = ()

    on_reject: Literal["collect", "fail"] = "collect"

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of a call, tables among them as what they describe."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name not in self._apart}
        return {name: value.build() if hasattr(value, "build") else value for name, value in given.items()}


def taken_by(check: Callable[[Any], object]) -> AfterValidator:
    """Hold a value for which a function raises no `BadArgument`; that is a ValueError, reported in its place."""

    def same(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(same)


def _is_finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"is {value}, wanted a finite number.")
    return value


def _are_settings(given: dict[str, Any]) -> dict[str, Any]:
    wrong = [f"{name} is {v!r}" for name, v in given.items() if not (isinstance(v, str | int | float) or _is_from(v))]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}, wanted text, a number, true or false, or {{ env = 'NAME' }}.")
    if bare := [name for name, value in given.items() if is_secret(name) and not isinstance(value, dict)]:
        raise ValueError(f"{bare[0]} is a secret, which no job file holds. Give {bare[0]} = {{ env = 'NAME' }}.")
    return given


def is_secret(name: str) -> bool:
    """Whether an option of this name is one that nobody should read."""
    return _SECRET.search(name) is not None


def _is_from(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["env"] and isinstance(value["env"], str)


def options_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with what the environment holds in the place of names; raises `JobError` for what it does not hold."""
    names = [value["env"] for value in settings.values() if isinstance(value, dict)]
    if missing := [name for name in names if name not in os.environ]:
        raise JobError(f"The job takes {missing[0]} from the environment, which has none. Set it and start again.")
    return {name: os.environ[value["env"]] if isinstance(value, dict) else value for name, value in settings.items()}


def _is_place(path: str) -> str:
    if "\0" in path:
        raise ValueError(f"is {path!r}, wanted a path, which has no NUL.")
    try:
        Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"is {path!r}, and there is no such home folder. Write the folder out.") from error
    return path


def _as_list(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


#: Before a list of texts: one text may stand alone.
OneOrMore = BeforeValidator(_as_list)
Text = Annotated[str, Field(min_length=1)]
#: A path or a URI.
Place = Annotated[Text, AfterValidator(_is_place)]
Number = Annotated[float, AfterValidator(_is_finite)]
Duration = Annotated[Any, taken_by(lambda given: duration(given, "the duration"))]
Ahead = Annotated[Any, taken_by(lambda given: given is None or ahead_micros(given, live=True))]
Settings = Annotated[dict[str, Any], AfterValidator(_are_settings)]


def _kind_of_epsilon(given: Any) -> str:
    return "cylinder" if isinstance(given, dict) else "number"


def _are_groups(given: dict[str, float]) -> dict[Any, float]:
    """Groups of dimensions by their names, which commas part."""
    named = {tuple(name.strip() for name in names.split(",")): distance for names, distance in given.items()}
    if not named or not all(all(own) for own in named):
        raise ValueError(
            f"is {given!r}, wanted distances of groups of dimensions, such as {{ 'x, y' = 50.0, z = 10.0 }}."
        )
    return {own if len(own) > 1 else own[0]: distance for own, distance in named.items()}


#: An epsilon for all dimensions, or one for each group of them; of positions one along the Earth and one of altitudes.
GroupedEpsilon = Annotated[
    Annotated[Number, Field(ge=0), Tag("number")]
    | Annotated[dict[Text, Annotated[Number, Field(ge=0)]], AfterValidator(_are_groups), Tag("cylinder")],
    Discriminator(_kind_of_epsilon),
]
Metric = Literal["euclidean", "manhattan", "chebyshev", "cosine"]
Scale = Annotated[dict[Text, Annotated[Number, Field(gt=0)]], Field(min_length=1)]
