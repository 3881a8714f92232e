"""Measures of how the code is built, each by one rule, from the source of `src/appulse` without `appulse.lab`.

    python -m tools.measure [--json] [--without-trips]      --json: the last line has all figures

* ``lines_src``: lines of the modules.
* ``file_circles``: circles of files that import each other, ``file_circles_src`` in `src/appulse` and
  ``file_circles_benchmarks`` in `benchmarks`: components of more than one file, of all imports, also of those inside
  functions and under ``if TYPE_CHECKING`` (`tools/circles.py`).
* ``signatures_over_8``: functions with more than 8 parameters, not counting ``self``, ``cls``, ``*args`` and
  ``**kwargs``; ``signatures_over_8_kernels`` of them are in `appulse.kernels`, and one has ``signature_most``.
* ``stages``: classes, or modules with functions outside of classes, that use the state of a Spark key: a function calls
  a method of a parameter of the state's class, or of an attribute that a call of that class was put into. The state's
  class is that of `src/appulse` that calls ``getValueState`` and is no ``StatefulProcessor``.
* ``plan_builders``: modules that build a Spark plan with a stage by key, or what stands behind a result frame: some
  function calls a method of `_KEYED` or makes a ``SparkResult``. The probe of a Spark installation is none.
* ``batch_classes``: classes whose batches are cut or joined by hand: a method, or a function that takes and returns the
  class, builds it anew, and indexes its own columns by a parameter, hands a parameter to ``take``, ``slice`` or
  ``filter`` of one or to ``gather*`` with one, or concatenates a column of the parts that a parameter has.
* ``readme_lines``: lines of README.md. ``longest_page_words``: words of the longest page of docs/. A word has a letter:
  numbers and the marks of tables are none.
* ``functions_without_example``: public functions and classes, exceptions apart, and the modules of `appulse.lab`, whose
  docstring has no ``>>>``. ``snippets_run``: docstrings with examples, and blocks of README.md and docs/, that are run
  by tests and `make docs-check`.
* ``trip_*_functions``, ``trip_*_files``, ``trip_*_changes``: `tools/trips.py`.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools import check_docs, circles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
MOST_PARAMETERS = 8
_APART = "lab"
_KEYED = ("transformWithState", "transformWithStateInPandas", "applyInArrow", "applyInPandas", "applyInPandasWithState")
_RESULT = "SparkResult"
_PROBE = "probe"
_CUTS = ("take", "slice", "filter")
_JOINS = ("concat", "join", "stack")  # parts of names


class Module(NamedTuple):
    """A module by its name below the package, and its source."""

    name: str
    lines: int
    tree: ast.Module


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="the figures as JSON, on the last line")
    parser.add_argument("--without-trips", action="store_true", help="leave out what has to be run")
    chosen = parser.parse_args()
    figures = measured(ROOT)
    if not chosen.without_trips:
        from tools.trips import trips  # imports appulse

        figures |= face(ROOT)
        for name, trip in trips().items():
            figures |= {f"trip_{name}_{what}": count for what, count in trip._asdict().items()}
    for name, value in figures.items():
        print(f"{name:28} {value:7,}")
    if chosen.json:
        print(json.dumps(figures))


def measured(root: Path) -> dict[str, int]:
    """The figures that need no run."""
    source = modules(root / "src" / "appulse")
    in_src, in_benchmarks = (len(circles.circles(circles.imports(root / name))) for name in circles.PACKAGES)
    wide = wide_signatures(source)
    return {
        "lines_src": sum(module.lines for module in source),
        "file_circles": in_src + in_benchmarks,
        "file_circles_src": in_src,
        "file_circles_benchmarks": in_benchmarks,
        "signatures_over_8": len(wide),
        "signatures_over_8_kernels": sum(name.startswith("kernels.") for name, _ in wide),
        "signature_most": max((count for _, count in wide), default=0),
        "stages": len(stages(source)),
        "plan_builders": len(plan_builders(source)),
        "batch_classes": len(batch_classes(source)),
    }


def face(root: Path) -> dict[str, int]:
    """The figures of what a reader sees first."""
    pages = sorted((root / "docs").rglob("*.md"))
    words = {page: sum(map(str.isalpha, _firsts(page))) for page in pages}
    blocks = [check_docs.read(page).blocks for page in [root / "README.md", *pages]]
    run = [any(doctest.SKIP not in one.options for one in _examples(value)) for value in documented().values()]
    return {
        "readme_lines": len((root / "README.md").read_text(encoding="utf-8").splitlines()),
        "longest_page_words": max(words.values()),
        "functions_without_example": sum(">>>" not in (value.__doc__ or "") for value in documented().values()),
        "snippets_run": sum(blocks) + sum(run),
    }


def documented() -> dict[str, Any]:
    """What has to have an example, by its name: public functions and classes but exceptions, and modules of the lab."""
    appulse = import_module("appulse")
    found = {name: getattr(appulse, name) for name in appulse.__all__}
    found |= {f"lab.{name}": getattr(found["lab"], name) for name in found["lab"].__all__}
    return {
        name: value
        for name, value in found.items()
        if name != "lab" and (name.startswith("lab.") or _is_documented(value))
    }


def _is_documented(value: Any) -> bool:
    return inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception))


def _examples(value: Any) -> Iterator[doctest.Example]:
    for test in doctest.DocTestFinder(recurse=False).find(value, "example", globs={}):
        yield from test.examples


def _firsts(page: Path) -> Iterator[str]:
    """Of every word with a letter its first letter, else a digit or a mark."""
    for word in page.read_text(encoding="utf-8").split():
        yield next(filter(str.isalpha, word), word[0])


def modules(package: Path) -> list[Module]:
    """The modules of the package, without those that stand apart."""
    found = []
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package).with_suffix("")
        if path.parts[0] != _APART:
            text = file.read_text(encoding="utf-8")
            found.append(Module(".".join(path.parts), len(text.splitlines()), ast.parse(text)))
    return found


def wide_signatures(source: Sequence[Module]) -> list[tuple[str, int]]:
    """Functions with more than `MOST_PARAMETERS`, with how many they have."""
    found = []
    for module in source:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = _parameters(node)
                count = len(names) - (names[:1] in (["self"], ["cls"]))
                if count > MOST_PARAMETERS:
                    found.append((f"{module.name}.{node.name}", count))
    return found


def stages(source: Sequence[Module]) -> list[str]:
    """What uses the state of a Spark key."""
    states = {name for module in source for name in _state_classes(module.tree)}
    if not states:
        raise LookupError("No class calls getValueState: say in tools/measure.py what holds the state of a Spark key.")
    found = set()
    for module in source:
        for owner, function in _functions(module.tree):
            if owner is None or owner.name not in states:
                held = {p.arg for p in _arguments(function) if p.annotation and _names(p.annotation) & states}
                attributes = _attributes(owner, states)
                if any(_root(one) in held or _own(one) in attributes for one in _receivers(function)):
                    found.add(module.name if owner is None else f"{module.name}.{owner.name}")
    return sorted(found)


def plan_builders(source: Sequence[Module]) -> list[str]:
    """The modules that build a Spark plan with a stage by key."""
    if not any(isinstance(node, ast.ClassDef) and node.name == _RESULT for m in source for node in ast.walk(m.tree)):
        raise LookupError(f"There is no class {_RESULT}: say in tools/measure.py what stands behind a result frame.")
    found = []
    for module in source:
        called = {_called(node) for node in ast.walk(module.tree) if isinstance(node, ast.Call)}
        if called & {*_KEYED, _RESULT} and module.name.rpartition(".")[2] != _PROBE:
            found.append(module.name)
    return found


def batch_classes(source: Sequence[Module]) -> list[str]:
    """The classes whose batches are cut or joined by hand."""
    found = set()
    for module in source:
        origin = {
            alias.name: node.module.partition(".")[2]
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for owner, function in _functions(module.tree):
            names = _parameters(function)
            if owner is not None:
                name = owner.name
                unbound = any(_names(one) & {"staticmethod", "classmethod"} for one in function.decorator_list)
                own = "" if unbound else "".join(names[:1])
            else:
                name = function.returns.id if isinstance(function.returns, ast.Name) else ""
                first = (_arguments(function) or [ast.arg("")])[0]
                if not name or first.annotation is None or name not in _names(first.annotation):
                    continue
                own = first.arg if isinstance(first.annotation, ast.Name) else ""
            others = set(names) - {own}
            if _builds(function, name, own) and (_cuts(function, own, others) or _joins(function, others)):
                found.add(f"{module.name if owner is not None else origin.get(name, module.name)}.{name}")
    return sorted(found)


def _builds(function: ast.FunctionDef, name: str, own: str) -> bool:
    """Whether a function makes an instance of the class, ``own`` being the name of one that it has."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=made) if made in {name, "cls"}:
                return True
            case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=of)]) if of == own:
                return True
            case ast.Attribute(value=ast.Name(id=of), attr="_replace") if of == own:
                return True
        if _called(node) == "replace" and node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == own:
            return True
    return False


def _cuts(function: ast.FunctionDef, own: str, others: set[str]) -> bool:
    """Whether columns of ``own`` are indexed by one of the others."""
    loops = {
        name
        for node in ast.walk(function)
        if isinstance(node, ast.comprehension) and own in _names(node.iter)
        for name in _names(node.target)
    }
    mine = {own, *loops} - {""}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript):
            if _root(node.value) in mine and _names(node.slice) & others:
                return True
        elif isinstance(node, ast.Call) and any(_names(argument) & others for argument in node.args):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CUTS and _root(node.func.value) in mine:
                return True
            if _called(node).startswith("gather") and any(_names(argument) & mine for argument in node.args):
                return True
    return False


def _joins(function: ast.FunctionDef, others: set[str]) -> bool:
    """Whether a column of each of the parts that one of the others has goes into a concatenation."""
    for call in ast.walk(function):
        if not (isinstance(call, ast.Call) and any(word in _called(call) for word in _JOINS)):
            continue
        for node in (node for argument in call.args for node in ast.walk(argument)):
            if isinstance(node, ast.ListComp | ast.GeneratorExp):
                loops = {name for loop in node.generators if _names(loop.iter) & others for name in _names(loop.target)}
                if any(isinstance(part, ast.Attribute) and _root(part) in loops for part in ast.walk(node.elt)):
                    return True
    return False


def _state_classes(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or any("StatefulProcessor" in _names(base) for base in node.bases):
            continue
        if any(isinstance(part, ast.Call) and _called(part) == "getValueState" for part in ast.walk(node)):
            yield node.name


def _attributes(owner: ast.ClassDef | None, classes: set[str]) -> set[str]:
    """The attributes of ``self`` that a call of one of the classes is put into."""
    return {
        target.attr
        for node in (ast.walk(owner) if owner is not None else ())
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called(node.value) in classes
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }


def _functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, ast.FunctionDef]]:
    """The functions of a module, and those of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield None, node
        elif isinstance(node, ast.ClassDef):
            yield from ((node, part) for part in node.body if isinstance(part, ast.FunctionDef))


def _receivers(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What methods are called on."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.value


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [argument.arg for argument in _arguments(function)]


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return str(name)
        case _:
            return ""


def _root(node: ast.AST) -> str:
    """The name that an expression of attributes, items and calls of methods begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _own(node: ast.AST) -> str:
    """The attribute of ``self`` that an expression is, if it is one."""
    return node.attr if isinstance(node, ast.Attribute) and _root(node) == "self" else ""


def _names(node: ast.AST) -> set[str]:
    """All names in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


if __name__ == "__main__":
    main()
