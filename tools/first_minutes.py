"""Do the steps of docs/first-minutes.md in a fresh environment, and write their times into the page.

    python -m tools.first_minutes [--keep FOLDER]

The wheel is built from the checkout and copied to an empty folder elsewhere, as a user has it. Packages come from the
index anew (no cache of pip). Programs of the page run in one process per step, with those of the steps before; a step
that is run twice shows what the first time costs. The programs of README.md follow as a step of their own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from tools import check_docs

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "first-minutes.md"
BEGIN, END = "<!-- times -->", "<!-- /times -->"
PATIENCE = 900


class Step(NamedTuple):
    """A heading of the page with its commands and its program."""

    name: str
    commands: list[str]
    program: str


def main() -> int:
    """Run all steps, and write the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="the folder to work in, which stays")
    keep: Path | None = parser.parse_args().keep
    with nullcontext(keep) if keep else tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        rows = run(steps(PAGE.read_text(encoding="utf-8")), folder)
    text = PAGE.read_text(encoding="utf-8")
    cores = len(os.sched_getaffinity(0))
    lines = ["| step | seconds |", "|---|---|", *(f"| {name} | {seconds:.1f} |" for name, seconds in rows)]
    whole, python = sum(seconds for _, seconds in rows), sys.version.split()[0]
    lines += ["", f"Together {whole:.0f} seconds on {cores} shared cores, Python {python}."]
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + after, encoding="utf-8")
    print("\n".join(lines))
    return 0


def steps(text: str) -> list[Step]:
    """The steps of the page."""
    found = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        commands = "".join(re.findall(r"^```sh\n(.*?)^```", part, re.DOTALL | re.MULTILINE)).splitlines()
        program = "".join(re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE))
        found.append(Step(part.partition("\n")[0], commands, program))
    return found


def run(todo: list[Step], folder: Path) -> list[tuple[str, float]]:
    """The seconds of each step, and of the README's programs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    python = str(folder / "venv" / "bin" / "python")
    rows: list[tuple[str, float]] = []
    programs = ""
    for step in todo:
        rows += [(f"{step.name}: `{command}`", _timed(["sh", "-c", command], folder)) for command in step.commands]
        if step.program:
            first = not programs
            programs += step.program
            rows.append((f"{step.name}: its program", _timed([python, "-c", programs], folder)))
            if first:
                rows.append((f"{step.name}: its program again", _timed([python, "-c", programs], folder)))
    readme = check_docs.read(ROOT / "README.md").program
    rows.append(("README.md: its three programs", _timed([python, "-c", readme], folder)))
    return rows


def _timed(command: list[str], folder: Path) -> float:
    clean = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PIP_NO_CACHE_DIR": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    clean |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "OPENBLAS", "SSL_"))}
    begin = time.perf_counter()
    subprocess.run(command, check=True, cwd=folder, env=clean | {"PIP_QUIET": "1"}, timeout=PATIENCE)
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
