#!/usr/bin/env python3
"""Write docs/reference.md and docs/reference/ from the docstrings of everything public in appulse.

    python tools/reference.py            write it
    python tools/reference.py --check    fail if what is there is out of date

One page lists all names, and each topic has a page. Examples in docstrings (`>>>`) are run by
`tests/project/test_examples.py`. Public is what `appulse.__all__` names. A class shows how it is made, and its
documented methods unless it only holds values.
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
from typing import TYPE_CHECKING, Any, ForwardRef, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

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
    ),
    "Imputers": (
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
    "Sensor networks": ("sensor_join", "SensorJoin", "phenomena", "Phenomena"),
    "Simulations": ("lab",),
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
    "MQTT": ("MqttReader", "mqtt_stream"),
    "Planning": ("plan", "Plan"),
    "How a call is carried out": ("Options", "session", "version"),
    "Errors": (
        "AllRejected",
        "AppulseError",
        "BadArgument",
        "BadInput",
        "CappedWindow",
        "CheckpointError",
        "ExplodingOutput",
        "GrownFile",
        "LateRows",
        "JobError",
        "NotBuilt",
        "OutputLimit",
        "SessionError",
        "StateError",
        "StateLimit",
        "StorageError",
        "SwappedDimensions",
        "SwappedPlaces",
        "TiedFiles",
        "UnlikelyUnit",
    ),
}

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

HEAD = """\
# Reference

Everything public, from the docstrings of the code. Examples run with `import appulse as ap`, `import pyarrow as pa` and
`import pandas as pd` before them. For what a call means see [Semantics](semantics.md); for errors and reject reasons
with remedies see [Errors and rejects](errors.md). A `Result` is a Spark DataFrame where streams have one, else a
`pyarrow.Table`.

`python tools/reference.py` writes these pages: change the docstrings, not the pages.
"""


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` compare them; 1 if one is out of date."""
    made = {DOCS / name: text for name, text in pages().items()}
    there = [file for file in (DOCS / "reference").glob("*.md") if file not in made]
    stale = [file for file, text in made.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for file in sorted([*stale, *there]):
            print(f"{file.relative_to(DOCS.parent)} is out of date; python tools/reference.py", file=sys.stderr)
        return 1 if stale or there else 0
    (DOCS / "reference").mkdir(parents=True, exist_ok=True)
    for file in there:
        file.unlink()
    for file in stale:
        file.write_text(made[file], encoding="utf-8")
    return 0


def pages() -> dict[str, str]:
    """The pages as they ought to be, by their name in docs/."""
    appulse = import_module("appulse")
    public = [name for name in appulse.__all__ if not name.startswith("__")]
    placed = [name for names in SECTIONS.values() for name in names]
    if placed != public:
        wrong = ", ".join(sorted(set(placed) ^ set(public))) or "their order"
        sys.exit(f"tools/reference.py: SECTIONS and appulse.__all__ differ in {wrong}")
    made, index = {}, [HEAD]
    for title, names in SECTIONS.items():
        page = f"reference/{title.lower().replace(' ', '-')}.md"
        index += [f"## [{title}]({page})\n", "| name | what it does |", "|---|---|"]
        lines = [f"# {title}\n"]
        if title == "Errors":
            lines.append(f"```text\n{_tree(import_module('appulse.errors'))}\n```\n")
            lines.append("Causes and remedies, message by message, are in [Errors and rejects](../errors.md).\n")
        for name in names:
            value = getattr(appulse, name)
            index.append(f"| [`{name}`]({page}#{name.lower()}) | {_first_line(value)} |")
            if isinstance(value, str):
                lines.append(f"## `{name}`\n\nText, such as `{value!r}`.\n")
            elif title == "Errors":
                lines.append(f"## `{name}`\n\n{prose(value)}\n")
            else:
                lines += module(name, value) if inspect.ismodule(value) else entry(name, value)
        index.append("")
        made[page] = "\n".join(lines).rstrip() + "\n"
    return {"reference.md": "\n".join(index).rstrip() + "\n"} | made


def _first_line(value: Any) -> str:
    """The first sentence of a docstring, for a cell of a table."""
    if isinstance(value, str):
        return "The version, as text."
    return prose(value).partition("\n\n")[0].replace("\n", " ").replace("|", r"\|")


def module(name: str, value: Any) -> Iterator[str]:
    """The lines about a module of more functions: all of them, or what its ``__all__`` names; modules of it, too."""
    yield f"## `{name}`\n"
    yield f"{prose(value)}\n"
    own = [other for other, one in vars(value).items() if getattr(one, "__module__", None) == value.__name__]
    for other in getattr(value, "__all__", [other for other in own if not other.startswith("_")]):
        part, one = f"{name}.{other}", getattr(value, other)
        yield from module(part, one) if inspect.ismodule(one) else entry(part, one)


def entry(name: str, value: Any) -> Iterator[str]:
    """The lines about one public name."""
    yield f"## `{name}`\n"
    yield f"```text\n{signature(name, value)}\n```\n"
    yield f"{prose(value)}\n"
    if not inspect.isclass(value) or dataclasses.is_dataclass(value):
        return
    own = [base for base in value.__mro__ if base.__module__.startswith("appulse.")]
    for method, function in {name: one for base in reversed(own) for name, one in vars(base).items()}.items():
        if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield f"### `{name}.{method}`\n"
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
    called = value.__init__ if inspect.isclass(value) else value
    if not hasattr(called, "__wrapped__"):
        return inspect.signature(value)
    made = inspect.signature(called.__wrapped__)
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
        # In an order of their own: that of a union depends on which equal one was made first.
        return " | ".join(sorted(set(parts), key=lambda part: (part == "None", part)))
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
        # Those of a NamedTuple are forward references, which Python shows in one way or another by its version.
        shown = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
        text += f": {shown if isinstance(shown, str) else inspect.formatannotation(shown)}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    """A default, the same in every process: sets have no order of their own."""
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(map(repr, sorted(value)))}}})"
    return repr(value)


def prose(value: Any) -> str:
    """A docstring as markdown; examples become blocks of code."""
    parts = re.split(r"^((?:>>> .*\n?)(?:.*\S.*\n?)*)", inspect.getdoc(value) or "", flags=re.MULTILINE)
    return "".join(
        f"```pycon\n{part.rstrip()}\n```\n" if i % 2 else _text(part) for i, part in enumerate(parts)
    ).rstrip()


def _text(text: str) -> str:
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
