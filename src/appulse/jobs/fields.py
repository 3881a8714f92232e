"""What every table of a job file is made of: no unknown keys, no silent conversion from one type to another."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from appulse.model.stream import ahead_micros
from appulse.model.times import duration

__all__ = ["Ahead", "CylinderTable", "Duration", "Epsilon", "Number", "OneOrMore", "Place", "Settings", "Table", "Text"]


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _is_duration(value: Any) -> Any:
    duration(value, "the duration")  # a BadArgument is a ValueError, which pydantic reports in its place
    return value


def _is_ahead(value: Any) -> Any:
    if value is not None:
        ahead_micros(value, live=True)
    return value


def _is_finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"is {value}, wanted a finite number.")
    return value


def _are_settings(given: dict[str, Any]) -> dict[str, Any]:
    wrong = [f"{name} is {value!r}" for name, value in given.items() if not isinstance(value, str | int | float)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}, wanted text, a number, true or false.")
    return given


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
Duration = Annotated[Any, AfterValidator(_is_duration)]
Ahead = Annotated[Any, AfterValidator(_is_ahead)]
Settings = Annotated[dict[str, Any], AfterValidator(_are_settings)]


class CylinderTable(Table):
    """An epsilon along the Earth, and one of altitudes."""

    horizontal: Annotated[Number, Field(ge=0)]
    vertical: Annotated[Number, Field(ge=0)]


def _kind_of_epsilon(given: Any) -> str:
    return "cylinder" if isinstance(given, dict | CylinderTable) else "number"


Epsilon = Annotated[
    Annotated[Number, Field(ge=0), Tag("number")] | Annotated[CylinderTable, Tag("cylinder")],
    Discriminator(_kind_of_epsilon),
]
