#!/usr/bin/env python3
"""Write docs/reference.md from the docstrings of everything public in appulse.

    python tools/reference.py            write it
    python tools/reference.py --check    fail if what is there is out of date

Public is what `appulse.__all__` names. A class shows how it is made, and its documented methods unless it only holds
values.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"

# What a reader looks for together; a public name that stands nowhere here fails the tool.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Streams and windows": (
        "Stream",
        "TimeWindow",
        "CountWindow",
        "UncertainCountWindow",
        "DeltaWindow",
        "TumblingWindow",
    ),
    "Uncertainty models": ("Exact", "Samples", "Gaussian", "Ball", "Position", "Incomplete", "Bursts"),
    "Joins": ("similarity_join", "self_join", "SimilarityJoin"),
    "Association": ("nearest", "Nearest", "assign", "Assign", "outliers", "Outliers"),
    "Motion": ("Straight", "Course", "Velocity", "encounters", "Encounters"),
    "Fences": ("fence_advice", "fence_events", "FenceEvents"),
    "Incomplete streams": (
        "impute",
        "DependencyImputer",
        "SavedImputer",
        "DifferentialDependency",
        "discover_dependencies",
        "AutoImputer",
        "RegressionImputer",
        "NearestImputer",
        "InterpolationImputer",
        "TimeRegressionImputer",
        "LastValueImputer",
        "SpeedImputer",
        "SpatialImputer",
        "EditingRules",
        "MeanImputer",
        "ZeroFill",
        "PointImputer",
    ),
    "Sensor networks": ("sensor_join", "SensorJoin", "phenomena", "Phenomena", "lab"),
    "Standing queries": ("match_queries", "ask", "QueryMatch"),
    "Operators that compose": (
        "filter",
        "decode_messages",
        "collect_samples",
        "SampleCollector",
        "window_aggregate",
        "WindowAggregate",
    ),
    "Results": ("rejects", "explain", "Explanation", "explain_pair", "start", "stream_batches", "replay", "listen"),
    "How a call is carried out": ("Options", "session", "version"),
    "Errors": (
        "AppulseError",
        "BadArgument",
        "BadInput",
        "CappedWindow",
        "CheckpointError",
        "ExplodingOutput",
        "LateRows",
        "JobError",
        "NotBuilt",
        "OutputLimit",
        "SessionError",
        "StateError",
        "StorageError",
    ),
}

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

HEAD = """\
# Reference

Everything public, from the docstrings of the code; `import appulse as ap` is how the pages write it. What a call
means is in [semantics.md](semantics.md). A `Result` is a Spark DataFrame where streams have one, else a
`pyarrow.Table`. This page is written by `python tools/reference.py`: change the docstrings,
not the page.
"""


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` compare it; 1 if it is out of date."""
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE.relative_to(ROOT)} is out of date; python tools/reference.py writes it anew", file=sys.stderr)
    return 1


def page() -> str:
    """The page as it ought to be."""
    appulse = import_module("appulse")
    public = [name for name in appulse.__all__ if not name.startswith("__")]
    placed = [name for names in SECTIONS.values() for name in names]
    if placed != public:
        wrong = ", ".join(sorted(set(placed) ^ set(public))) or "their order"
        sys.exit(f"tools/reference.py: SECTIONS and appulse.__all__ differ in {wrong}")
    lines = [HEAD]
    for title, names in SECTIONS.items():
        lines.append(f"## {title}\n")
        if title == "Errors":
            lines.append(f"```text\n{_tree(import_module('appulse.errors'))}\n```\n")
            lines += [f"* `{name}`: {prose(getattr(appulse, name))}" for name in names]
            continue
        for name in names:
            value = getattr(appulse, name)
            if isinstance(value, str):
                lines.append(f"### `{name}`\n\nText, such as `{value!r}`.\n")
                continue
            lines += module(name, value) if inspect.ismodule(value) else entry(name, value)
    return "\n".join(lines).rstrip() + "\n"


def module(name: str, value: Any) -> Iterator[str]:
    """The lines about a module of more functions: all of them, or what its ``__all__`` names; modules of it, too."""
    yield f"### `{name}`\n"
    yield f"{prose(value)}\n"
    own = [other for other, one in vars(value).items() if getattr(one, "__module__", None) == value.__name__]
    for other in getattr(value, "__all__", [other for other in own if not other.startswith("_")]):
        part, one = f"{name}.{other}", getattr(value, other)
        yield from module(part, one) if inspect.ismodule(one) else entry(part, one)


def entry(name: str, value: Any) -> Iterator[str]:
    """The lines about one public name."""
    yield f"### `{name}`\n"
    yield f"```text\n{signature(name, value)}\n```\n"
    yield f"{prose(value)}\n"
    if not inspect.isclass(value) or dataclasses.is_dataclass(value):
        return
    own = [base for base in value.__mro__ if base.__module__.startswith("appulse.")]
    for method, function in {name: one for base in reversed(own) for name, one in vars(base).items()}.items():
        if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield f"#### `{name}.{method}`\n"
            yield f"```text\n{signature(method, function)}\n```\n"
            yield f"{prose(function)}\n"


def signature(name: str, value: Any) -> str:
    """How it is called, an argument a line where one line is too short."""
    made = _plain(value)
    shown = [_parameter(parameter) for parameter in made.parameters.values() if parameter.name != "self"]
    shown = _with_marks(list(made.parameters.values()), shown)
    back = made.return_annotation
    ends = "" if back in (inspect.Signature.empty, "None", None) else f" -> {back}"
    line = f"{name}({', '.join(shown)}){ends}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + f"){ends}"


def _plain(value: Any) -> inspect.Signature:
    """A signature with the types that a reader knows, in place of the aliases by which arguments are checked."""
    made = inspect.signature(value)
    if not hasattr(value.__init__ if inspect.isclass(value) else value, "__wrapped__"):
        return made
    said = {name: one.annotation for name, one in made.parameters.items() if one.annotation is not one.empty}
    known = get_type_hints(SimpleNamespace(__annotations__=said), vars(sys.modules[value.__module__]))
    return made.replace(
        parameters=[
            one.replace(annotation=_type(known[name])) if name in known else one
            for name, one in made.parameters.items()
        ]
    )


def _type(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Callable:
        taken, given = get_args(kind)
        return f"Callable[[{', '.join(map(_type, taken))}], {_type(given)}]"
    parts = ["..." if part is ... else _type(part) for part in get_args(kind)]
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(sorted(parts, key="None".__eq__)))
    name = "None" if kind is type(None) else getattr(origin or kind, "__name__", str(kind))
    return f"{name}[{', '.join(parts)}]" if parts else name


def _with_marks(parameters: list[inspect.Parameter], shown: list[str]) -> list[str]:
    """The bare star before keyword-only arguments, where no ``*more`` stands there already."""
    parameters = [parameter for parameter in parameters if parameter.name != "self"]
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.KEYWORD_ONLY not in kinds or inspect.Parameter.VAR_POSITIONAL in kinds:
        return shown
    at = kinds.index(inspect.Parameter.KEYWORD_ONLY)
    return [*shown[:at], "*", *shown[at:]]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = _STARS.get(parameter.kind, "")
    kind = parameter.annotation
    text = f"{stars}{parameter.name}"
    if kind is not inspect.Parameter.empty:
        text += f": {kind if isinstance(kind, str) else inspect.formatannotation(kind)}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    """A default, the same in every process: sets have no order of their own."""
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(map(repr, sorted(value)))}}})"
    return repr(value)


def prose(value: Any) -> str:
    """A docstring as markdown."""
    text = inspect.getdoc(value) or ""
    parts = re.split(r"(``?[^`]+``?)", text)
    # Outside code a type such as list<double> would be taken for a tag.
    return "".join(f"`{part.strip('`')}`" if i % 2 else part.replace("<", r"\<") for i, part in enumerate(parts))


def _tree(module: Any) -> str:
    """The tree of errors, as the module's docstring draws it."""
    drawn = inspect.getdoc(module) or ""
    block = [line.removeprefix("    ") for line in drawn.splitlines() if line.startswith("    ")]
    return "\n".join(block)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
