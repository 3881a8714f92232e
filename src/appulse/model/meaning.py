"""What a call means, as plain JSON in the words of its arguments: checkpoints keep it, and later jobs have to equal it.

A meaning has mappings, lists, texts, numbers and booleans. What is at its default is left out, so that an argument that
is added later changes no meaning that was kept. No part of it depends on how the code is written today, or on the
wording of another library. Words that were kept once never change: the tests hold a golden copy of each.
"""

from __future__ import annotations

import json
import math
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from appulse.errors import BadArgument
from appulse.model.uncertainty import Ball, Exact, Gaussian, Incomplete, Position, Samples, Vectors, in_closed_form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from appulse.model.uncertainty import Model

Meaning: TypeAlias = dict[str, Any]

#: The version of the words, part of every call's meaning.
VERSION = 1
_NONE = object()
_MOST_TEXT, _MOST_LINES = 80, 5


def without_defaults(meaning: Meaning, defaults: Mapping[str, Any]) -> Meaning:
    """The mapping without the entries that are at their defaults."""
    return {name: value for name, value in meaning.items() if name not in defaults or value != defaults[name]}


def canonical(meaning: Any) -> str:
    """The one text of a meaning: sorted keys, no spaces, numbers to the last bit."""
    return json.dumps(meaning, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(meaning: Any) -> str:
    """A short text that differs where meanings do."""
    return digest_of([canonical(meaning).encode()])


def digest_of(parts: Iterable[bytes]) -> str:
    """A short text that differs where the bytes do, or where one part ends and the next begins."""
    found = blake2b(digest_size=8)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


# --- its parts --------------------------------------------------------------------------------------------------------


def real(value: float) -> float | str:
    """A number as a double, with one zero; text where JSON has no such number."""
    value = float(value) + 0.0
    return value if math.isfinite(value) else str(value)


def seconds(micros: int) -> str:
    """A duration, as users may write it: ``"1.5 seconds"``."""
    whole, rest = divmod(micros, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " seconds"


def of_model(model: Model) -> Meaning:
    """An uncertainty model with its columns."""
    found: Meaning = {"kind": _MODELS[type(model)]}
    if isinstance(model, Samples):
        names = None if model.names is None else list(model.names)
        found |= {"column": model.column, "weights": model.weights, "names": names}
        return without_defaults(found, {"weights": None, "names": None})
    found["columns"] = list(model.columns)
    if isinstance(model, Gaussian):
        found |= {_error_of(model): _spreads(model), "samples": model.samples}
    elif isinstance(model, Incomplete):
        same = not isinstance(model.sigma, tuple)
        found["sigma"] = _spread(model.deviations[0]) if same else [real(s) for s in model.deviations]
        return without_defaults(found, {"sigma": 0.0})
    elif isinstance(model, Ball):
        found |= {"radius": _spread(model.radius), "samples": model.samples}
    elif isinstance(model, Position):
        found |= {"sigma": _spread(model.sigma), "earth": model.earth}
        found |= {"altitude_sigma": _spread(model.altitude_sigma), "geography": model.geography}
        found |= {"ellipse": None if model.ellipse is None else [_spread(s) for s in model.ellipse]}
        return without_defaults(
            found, {"sigma": 0.0, "ellipse": None, "altitude_sigma": 0.0, "earth": "wgs84", "geography": None}
        )
    return without_defaults(found, {"samples": 64})


_MODELS: dict[type, str] = {
    Exact: "Exact",
    Samples: "Samples",
    Gaussian: "Gaussian",
    Ball: "Ball",
    Incomplete: "Incomplete",
    Position: "Position",
    Vectors: "Exact",
}


def _error_of(model: Gaussian) -> str:
    """The argument that says how large errors are; deviations by dimension once meant samples, where now is none."""
    if model.sigma is None:
        return "covariance" if model.ellipse is None else "ellipse"
    return "sigma" if model.isotropic or not in_closed_form(model) else "sigmas"


def _spreads(model: Gaussian) -> list[str | float] | str | float:
    return _spread(model.errors[0]) if model.isotropic else [_spread(s) for s in model.errors]


def _spread(given: str | float) -> str | float:
    """A column's name, or the number itself."""
    return given if isinstance(given, str) else real(given)


def of_type(kind: pa.DataType) -> str:
    """An Arrow type in a spelling of our own, which leaves out what values do not show: names and nulls of items."""
    plain = _PLAIN.get(kind.id)
    if plain is not None:
        return plain
    for known, spelled in _BUILT:
        if known(kind):
            return spelled(kind)
    raise BadArgument(f"A column is of the Arrow type {kind}, which appulse does not know. Cast it before the call.")


_PLAIN = {
    kind.id: name
    for name, kind in {
        "null": pa.null(),
        "bool": pa.bool_(),
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint8": pa.uint8(),
        "uint16": pa.uint16(),
        "uint32": pa.uint32(),
        "uint64": pa.uint64(),
        "float16": pa.float16(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "string": pa.string(),
        "large_string": pa.large_string(),
        "string_view": pa.string_view(),
        "binary": pa.binary(),
        "large_binary": pa.large_binary(),
        "binary_view": pa.binary_view(),
        "date32": pa.date32(),
        "date64": pa.date64(),
        "interval": pa.month_day_nano_interval(),
    }.items()
}


def _named(kind: pa.DataType) -> str:
    return ", ".join(f"{json.dumps(field.name)}: {of_type(field.type)}" for field in kind)


def _zoned(kind: pa.DataType) -> str:
    return f"timestamp({kind.unit})" if kind.tz is None else f"timestamp({kind.unit}, {kind.tz})"


_Built = tuple["Callable[[pa.DataType], bool]", "Callable[[pa.DataType], str]"]
_BUILT: tuple[_Built, ...] = (
    (pa.types.is_timestamp, _zoned),
    (pa.types.is_time32, lambda kind: f"time32({kind.unit})"),
    (pa.types.is_time64, lambda kind: f"time64({kind.unit})"),
    (pa.types.is_duration, lambda kind: f"duration({kind.unit})"),
    (pa.types.is_decimal, lambda kind: f"decimal{kind.bit_width}({kind.precision}, {kind.scale})"),
    (pa.types.is_fixed_size_binary, lambda kind: f"fixed_binary({kind.byte_width})"),
    (pa.types.is_map, lambda kind: f"map({of_type(kind.key_type)}, {of_type(kind.item_type)})"),
    (pa.types.is_list, lambda kind: f"list({of_type(kind.value_type)})"),
    (pa.types.is_large_list, lambda kind: f"large_list({of_type(kind.value_type)})"),
    (pa.types.is_list_view, lambda kind: f"list_view({of_type(kind.value_type)})"),
    (pa.types.is_large_list_view, lambda kind: f"large_list_view({of_type(kind.value_type)})"),
    (pa.types.is_fixed_size_list, lambda kind: f"fixed_list({of_type(kind.value_type)}, {kind.list_size})"),
    (pa.types.is_struct, lambda kind: f"struct({_named(kind)})"),
    (pa.types.is_union, lambda kind: f"{kind.mode}_union({_named(kind)})"),
    (pa.types.is_dictionary, lambda kind: f"dictionary({of_type(kind.value_type)})"),
    (pa.types.is_run_end_encoded, lambda kind: f"run_end_encoded({of_type(kind.value_type)})"),
    (
        lambda kind: isinstance(kind, pa.BaseExtensionType),
        lambda kind: f"extension({kind.extension_name}, {of_type(kind.storage_type)})",
    ),
)


# --- two of them ------------------------------------------------------------------------------------------------------


def differences(kept: Any, asked: Any, where: str = "") -> Iterator[str]:
    """Where a job's meaning is not the one that a checkpoint has, a line each, in words for its user."""
    if kept == asked:
        return
    if isinstance(kept, dict) and isinstance(asked, dict):
        for name in sorted({*kept, *asked}):
            yield from differences(
                kept.get(name, _NONE), asked.get(name, _NONE), f"{where}.{name}" if where else str(name)
            )
        return
    ours, theirs = _by_name(kept), _by_name(asked)
    if ours is not None and theirs is not None:
        if list(ours) == list(theirs):
            yield from differences(ours, theirs, where)
            return
        kept, asked = list(ours), list(theirs)
    yield f"{where}: the checkpoint has {_text(kept)}, the job asks for {_text(asked)}"


def listed_differences(kept: Meaning, asked: Meaning) -> str:
    """The first of the differences, a line each; empty where there are none."""
    lines = list(differences(kept, json.loads(canonical(asked))))
    more = [f"and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return "\n".join(f"  {line}" for line in [*lines[:_MOST_LINES], *more])


def _by_name(meaning: Any) -> Meaning | None:
    """A list of mappings, such as streams, by their names."""
    if not isinstance(meaning, list) or not all(isinstance(one, dict) and "name" in one for one in meaning):
        return None
    return {one["name"]: one for one in meaning}


def _text(value: Any) -> str:
    if value is _NONE:
        return "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."
