"""Write docs/errors.md and docs/errors/ from the code: every named error and every reason of a reject.

    python -m tools.errors            write them
    python -m tools.errors --check    fail if what is there is out of date

Named errors are those of `appulse.errors`, with their docstrings; messages are read off the source, with an ellipsis
where a value stands. Reasons are `appulse.model.defects.REASONS`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tools.reference import prose

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

HEAD = """\
# Errors and rejects

A wrong *argument* raises an exception; an unusable *row* becomes a reject. An exception says what failed, what was
given, and what to do next. A reject is a row with a reason: `ap.rejects(result)` returns them, and for a stream the
second sink of `ap.start` receives them.

`python -m tools.errors` writes this page from the code.

## Spark: "Stream-stream join without equality predicate is not supported"

This is an error of Spark, not of appulse. Its full text is

```text
pyspark.errors.exceptions.captured.AnalysisException:
Stream-stream join without equality predicate is not supported.;
```

**Cause.** Two streaming DataFrames are joined by a distance, a range or another condition without `a.x = b.y`. Spark
keeps the state of a join by equal keys, and refuses joins without one.

**Remedy.** For a distance, use `ap.similarity_join`: see [coming from a Spark cell join](coming-from/spark-cells.md).
For a region, use `ap.match_queries`. For other conditions, derive an equal key (a cell, a time bucket), join on it and
filter.

## Reasons of rejects

| reason | cause | what to do |
|---|---|---|
"""


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` compare them; 1 if one is out of date."""
    made = {DOCS / name: text for name, text in pages().items()}
    stale = [file for file, text in made.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    for file in stale:
        if "--check" in arguments:
            print(f"{file.relative_to(DOCS.parent)} is out of date; python -m tools.errors", file=sys.stderr)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text := made[file], encoding="utf-8")
            print(f"{file.relative_to(DOCS.parent)}: {len(text.split())} words")
    return 1 if stale and "--check" in arguments else 0


def pages() -> dict[str, str]:
    """The pages as they ought to be, by their name in docs/."""
    reasons = import_module("appulse.model.defects").REASONS
    lines = [HEAD + "\n".join(f"| `{name}` | {cause} | {remedy} |" for name, (cause, remedy) in reasons.items())]
    lines += ["\nEach bad row is reported once, with one reason. `detail` has the value that was found.\n"]
    for title, warns in (("Exceptions", False), ("Warnings", True)):
        lines.append(f"## {title}\n")
        if not warns:
            lines.append("`except ap.AppulseError` catches all of them.\n")
        for name, kind in named().items():
            if issubclass(kind, Warning) == warns:
                link = f" [Messages](errors/messages.md#{name.lower()})." if name in SHOWN else ""
                lines.append(f"### `{name}`\n\n{prose(kind)}{link}\n")
    listed = ["# Error messages\n", "An ellipsis stands for a value. `BadArgument` is not"]
    listed += ["listed: its messages name the argument, what came, and what is allowed.\n"]
    texts = messages()
    for name in SHOWN:
        listed += [f"## `{name}`\n", *(f"* {text}" for text in texts[name]), ""]
    return {
        "errors.md": "\n".join(lines).rstrip() + "\n",
        "errors/messages.md": "\n".join(listed).rstrip() + "\n",
    }


def named() -> dict[str, type[Exception]]:
    """Every exception and warning of `appulse.errors`, in the order of the file."""
    module = import_module("appulse.errors")
    return {
        name: kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == module.__name__
    }


#: The errors whose messages are listed.
SHOWN = ("SessionError", "CheckpointError", "StateError", "StorageError", "OutputLimit", "NotBuilt", "JobError")


def messages() -> dict[str, list[str]]:
    """The texts that each named error is raised with."""
    known = named()
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "src" / "appulse").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known and node.args:
                text = " ".join("".join(_text(node.args[0])).split())
                if len(text.replace("…", "").split()) > 2:
                    found.setdefault(node.func.id, set()).add(text.replace("<", "\\<").replace("*", "\\*"))
    return {name: sorted(texts, key=lambda text: text.lstrip("… `")) for name, texts in found.items()}


def _text(node: ast.expr) -> Iterator[str]:
    """The parts of a message, an ellipsis in place of values."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            for part in values:
                yield from _text(part)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*_text(left), *_text(right))
        case _:
            yield "…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
