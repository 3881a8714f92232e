"""What is wrong with a job file, in words: where, what was there, what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from appulse.errors import nearest
from appulse.jobs.fields import Table
from appulse.jobs.sources import MODELS
from appulse.jobs.tables import OPERATORS, JobTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["Problem", "problems_of"]

_WANTED = {
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "too_short": "at least one entry",
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "at most {le:g}",
}
_KINDS = {str: "text", bool: "a truth value", int: "a number", float: "a number", list: "a list", dict: "a table"}

# Tables that have one name in the file and several shapes, by their format.
_ALERTS = ("WebhookTable", "TopicAlertTable")
_SOURCES = ("SourceTable", "TopicsTable", "MqttTable", "ReplayTable")
_VARIANTS = (*_SOURCES, "FilesSink", "TableSink", "IcebergSink", "TopicSink", *_ALERTS)
_FURTHER = {"SourceTable": ("kafka", "mqtt", "replay"), "FilesSink": ("iceberg", "jdbc", "kafka")}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: its place in the file as a dotted path, and what it is."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


def problems_of(failure: ValidationError, given: Mapping[str, Any]) -> list[Problem]:
    """Every problem pydantic found in what the file holds, each once, in the words of this project."""
    found = [Problem(_place(where, given), what) for where, what in map(_described, failure.errors())]
    return list(dict.fromkeys(found))


def _described(error: ErrorDetails) -> tuple[tuple[int | str, ...], str]:
    """Place and text of one error."""
    where, context = error["loc"], error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return where, f"unknown key.{_instead(str(where[-1]), _known(where))}"
        case "missing":
            return where, "is missing, and has no default."
        case "value_error":
            return where, str(context["error"])
        case "literal_error":
            known = [word.strip("' ") for part in context["expected"].split(",") for word in part.split(" or ")]
            known += _FURTHER.get(str(where[-2]), ()) if where[-1] == "format" and len(where) > 1 else ()
            return where, f"is {_shown(error['input'])}.{nearest(str(error['input']), known)}"
        case "union_tag_not_found":
            return (*where, "model"), f"is missing. Known: {', '.join(MODELS)}."
        case "union_tag_invalid":
            return (*where, "model"), f"is {context['tag']!r}.{nearest(context['tag'], MODELS)}"
        case kind:
            wanted = _WANTED[kind].format(**context) if kind in _WANTED else error["msg"]
            return where, f"is {_shown(error['input'])}, wanted {wanted}."


def _instead(key: str, known: list[str]) -> str:
    """What to write in place of a key."""
    if "value" in known and key.capitalize() in MODELS:
        return f' The model of a value is in its table: value = {{ model = "{key.capitalize()}", ... }}.'
    return nearest(key, known)


def _known(where: tuple[int | str, ...]) -> list[str]:
    """The keys that the table knows which holds the last part of a path."""
    tables: list[type[Table]] = [JobTable]
    named = False  # whether the next part is a name that the file's writer chose
    for part in where[:-1]:
        if named or isinstance(part, int):  # or the place in a list
            named = False
            continue
        if part in MODELS or part in _VARIANTS:
            tables = [table for table in tables if table.__name__ in (part, f"{part}Table")]
            continue
        fields = [(f.alias or name, f) for table in tables for name, f in table.model_fields.items()]
        kinds = [field.annotation for name, field in fields if name == part]
        tables = [table for kind in kinds for table in _tables(kind)]
        named = any(get_origin(kind) is dict for kind in kinds)
    return [field.alias or name for table in tables for name, field in table.model_fields.items()]


def _tables(kind: object) -> Iterator[type[Table]]:
    """Every table that an annotation mentions."""
    if isinstance(kind, type) and issubclass(kind, Table):
        yield kind
    for inner in get_args(kind):
        yield from _tables(inner)


def _shown(value: object) -> str:
    text = repr(value)
    kind = _KINDS.get(type(value), f"a {type(value).__name__}")
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({kind})"


def _place(where: tuple[int | str, ...], given: Mapping[str, Any]) -> str:
    """The dotted path as it stands in the file."""
    # pydantic names the model of a value, and the variant of a table, as if it were a table of its own.
    where = tuple(part for part in where if part not in _VARIANTS)
    named = {"value": MODELS, "epsilon": ("number", "cylinder")}
    parts = [part for i, part in enumerate(where) if not (i and part in named.get(str(where[i - 1]), ()))]
    shared = given.get("defaults")
    match parts:
        case ["sources", name, key, *rest] if (
            isinstance(shared, Mapping) and key in shared and key not in given["sources"][name]
        ):
            parts = ["defaults", key, *rest]
        case [str(operator), "window", "time"] if operator in OPERATORS and not isinstance(
            given[operator]["window"], Mapping
        ):
            parts = [operator, "window"]
    return ".".join(str(part) for part in parts)
