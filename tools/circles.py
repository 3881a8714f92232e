"""Find circles: files of a package that import each other, directly or through others.

    python -m tools.circles        check src/appulse and benchmarks; ends with 1 if there is a circle

A circle is a strongly connected component of more than one file. Every import of a module of the package counts,
wherever it stands: at the top, inside a function, or under ``if TYPE_CHECKING``. A name imported from a package counts
as its module if it is one, else as the package's ``__init__``. That a module makes Python load the packages above it
does not count.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Lines = Mapping[str, Mapping[str, int]]  # by module: the modules that it imports, and the first line that does

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("src/appulse", "benchmarks")


def main() -> int:
    """Print each circle with the imports that make it, and return 1 if there is one."""
    found = 0
    for package in PACKAGES:
        files, lines = modules(ROOT / package), imports(ROOT / package)
        for circle in circles(lines):
            found += 1
            print(f"{package}: {len(circle)} files import each other; move what they share to a module below them:")
            for module in circle:
                for other in sorted(lines[module].keys() & set(circle)):
                    print(f"  {files[module].relative_to(ROOT)}:{lines[module][other]} imports {other}")
    return 1 if found else 0


def modules(package: Path) -> dict[str, Path]:
    """The modules of a package, by their full names."""
    files = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


def imports(package: Path) -> dict[str, dict[str, int]]:
    """What each module of a package imports of the others, with the first line that does."""
    files = modules(package)
    found: dict[str, dict[str, int]] = {}
    for module, file in files.items():
        known = found.setdefault(module, {})
        above = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for name in _imported(node, above):
                target = name if name in files else name.rpartition(".")[0]
                if target in files and target != module:
                    known[target] = min(node.lineno, known.get(target, node.lineno))
    return found


def _imported(node: ast.Import | ast.ImportFrom, above: str) -> Iterator[str]:
    """The dotted names that a statement imports; ``above`` is the package of its module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = above.split(".")[: 1 - node.level or None] if node.level else []
    start = ".".join([*base, *filter(None, [node.module])])
    yield from (f"{start}.{alias.name}" for alias in node.names)


def circles(lines: Lines) -> list[list[str]]:
    """The circles, each in order of names (Tarjan's algorithm for strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in lines[module]:
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            circle = path[path.index(module) :]
            del path[path.index(module) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in lines:
        if module not in order:
            visit(module)
    return sorted(found)


if __name__ == "__main__":
    sys.exit(main())
