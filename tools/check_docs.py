#!/usr/bin/env python3
"""Check that README.md and docs/ tell the truth: examples run, links lead somewhere, names of the code exist.

    python tools/check_docs.py [FILE ...]      all of them, or these

A fenced block marked ``python`` is run, unless marked ``python no-run``. The blocks of a file run in order as one
program, in a process of their own and an empty folder; as many files at once as there are cores. What a block marked
``text`` shows right below one must be what that printed; in the one a line ``...`` is any lines. Checked names are
what stands in backticks as a path of the checkout (`tests/test_x.py::test_y` down to the function) or as a dotted name
that begins with `appulse.`.
"""

from __future__ import annotations

import ast
import io
import multiprocessing
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 600.0  # seconds for the examples of one file

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(<?(?P<inline>[^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*<?(?P<reference>[^\s>]+)")
CODE = re.compile(r"`([^`]+)`")
PATH = re.compile(r"(?P<path>(?:src|tests|benchmarks|docs|examples|tools)/[\w./-]*)(?P<names>(?:::\w+)*)(?:\[.*\])?")
DOTTED = re.compile(r"appulse(?:\.\w+)+(?<!\.json)(?<!\.toml)")

#: What a page's program calls where an example begins, and where the page shows what it printed.
SHOWN = "__shown__"
# Each page has a process of its own, forked from one that has these: to import them takes longer than most pages.
IMPORTED = ["appulse.api.by_hand", "appulse.api.calls", "pandas"]


@dataclass(frozen=True)
class Page:
    """A markdown file, told apart into what runs and what is read; every line keeps its number."""

    file: Path
    program: str
    prose: list[str]
    blocks: int
    #: Below an example what it prints, by the last line of its block; None by the first line of each.
    shown: dict[int, list[str] | None]

    @property
    def name(self) -> str:
        """The file as one would write it from the root of the checkout."""
        return str(self.file.relative_to(ROOT))


def main(arguments: list[str]) -> int:
    """Check the pages and return 1 if anything is wrong with any."""
    files = [Path(name).resolve() for name in arguments] or [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if missing := [str(file) for file in files if not file.is_file()]:
        sys.exit(f"there is no {', no '.join(missing)}; run this in the checkout, or name pages that exist")
    multiprocessing.get_context("forkserver").set_forkserver_preload(IMPORTED)
    wrong = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for page, problems, seconds in pool.map(check, map(read, files)):
            verdict = "WRONG" if problems else "ok"
            print(f"{verdict:5}  {page.name}: {page.blocks} examples, {seconds:.1f} s", flush=True)
            for problem in problems:
                print(f"       {page.name}:{problem}", flush=True)
            wrong += bool(problems)
    print(f"{len(files)} pages, {wrong} wrong")
    return 1 if wrong else 0


def check(page: Page) -> tuple[Page, list[str], float]:
    """The page with all that is wrong with it, and the seconds that it took to find out."""
    begin = time.perf_counter()
    problems = [*broken_links(page), *unknown_names(page), *failures(page)]
    return page, problems, time.perf_counter() - begin


def read(file: Path) -> Page:
    """Tell a page's runnable code from its prose. Lines of the one are blank in the other."""
    program: list[str] = []
    prose: list[str] = []
    blocks = 0
    fence, indent, runs, shows = "", 0, False, False
    ended, shown = 0, dict[int, list[str] | None]()  # the line below the latest example, where only blank ones came
    for line in file.read_text(encoding="utf-8").splitlines():
        found = FENCE.match(line)
        code = said = ""
        if not fence and found:
            fence, indent = found["fence"], len(found["indent"])
            runs = found["info"].split() == ["python"]
            shows = bool(ended) and found["info"].split() == ["text"]
            blocks += runs
            if runs:
                shown[len(program) + 1] = None
            if shows:
                shown[ended] = []
        elif fence and found and found["fence"].startswith(fence) and not found["info"].strip():
            fence = ""
            ended = len(program) + 1 if runs else 0
        elif fence:
            code = line[indent:] if runs else ""
            if shows:
                shown[ended] = [*(shown[ended] or []), line[indent:].rstrip()]
        else:
            said = line
            ended = 0 if line.strip() else ended
        program.append(code)
        prose.append(said)
    return Page(file, "\n".join(program), prose, blocks, shown)


def failures(page: Page) -> Iterator[str]:
    """What the examples of a page said if they failed."""
    if not page.blocks:
        return
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("r") as said:
        process = context.Process(target=run, args=(page, folder, said.name))
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            yield f" the examples had not ended after {PATIENCE:g} seconds"
        elif process.exitcode:
            output = said.read()
            lines = re.findall(rf'File "{re.escape(str(page.file))}", line (\d+)', output)
            yield f"{lines[-1] if lines else ''} an example failed\n{output}"


def run(page: Page, folder: str, output: str) -> None:
    """Run a page's program, under the name of the page, so that a traceback shows the page's own lines."""
    os.chdir(folder)
    written = os.open(output, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(written, stream)
    printed = io.StringIO()

    def compare(line: int) -> None:
        said = [one.rstrip() for one in printed.getvalue().rstrip().splitlines()]
        printed.seek(0)
        printed.truncate()
        if (lines := page.shown[line]) is None:  # an example begins
            return
        wanted = "\n".join(lines).rstrip()
        if not re.fullmatch(re.escape(wanted).replace(re.escape("...\n"), r"(?:.*\n)*"), "\n".join(said)):
            raise AssertionError("\n".join(["it printed:", *said, "and the page shows:", wanted]))

    program = page.program.splitlines()
    for line in page.shown:
        program[line - 1] = f"{SHOWN}({line})"
    with redirect_stdout(printed):
        exec(compile("\n".join(program), page.file, "exec"), {"__name__": "__main__", SHOWN: compare})  # noqa: S102 - our own


def broken_links(page: Page) -> Iterator[str]:
    """Relative links to files that are not there."""
    for number, line in enumerate(page.prose, 1):
        for link in LINK.finditer(CODE.sub("", line)):
            target = (link["inline"] or link["reference"]).partition("#")[0]
            if target and not re.match(r"[a-z]+:", target) and not (page.file.parent / target).exists():
                yield f"{number} the link to {target} leads nowhere"


def unknown_names(page: Page) -> Iterator[str]:
    """Paths and names of the code that are not there."""
    for number, line in enumerate(page.prose, 1):
        for code in CODE.findall(line):
            if found := PATH.fullmatch(code):
                exists = names_exist(ROOT / found["path"], found["names"].split("::")[1:])
            elif DOTTED.fullmatch(code):
                exists = dotted_exists(code.split("."))
            else:
                continue
            if not exists:
                yield f"{number} there is no `{code}`"


def names_exist(file: Path, names: list[str]) -> bool:
    """Whether the file exists and its code binds all the names, at whatever depth."""
    if not names:
        return file.exists()
    return file.is_file() and set(names) <= set(bound(ast.parse(file.read_text(encoding="utf-8"))))


def dotted_exists(parts: list[str]) -> bool:
    """Whether a dotted name is a package, a module, or something bound in one."""
    for length in range(len(parts), 0, -1):
        base = ROOT.joinpath("src", *parts[:length])
        for file in (base / "__init__.py", base.with_suffix(".py")):
            if file.is_file():
                return names_exist(file, parts[length:])
    return False


def bound(tree: ast.AST) -> Iterator[str]:
    """Every name that some statement of the code binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
