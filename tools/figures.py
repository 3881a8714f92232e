#!/usr/bin/env python3
"""Write the benchmark's figures into README.md and docs/reproduction.md, between their ``figures`` marks.

    python -m benchmarks.pipeline --quick --json | python -m tools.figures
    python -m tools.figures run.log

The figures are the last line that is one JSON object. A figure that the run has not got is shown as not yet run: what
stands in the table is always of one run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "reproduction.md")
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
COMMAND = "python -m benchmarks.pipeline --quick --json"
NOT_RUN = "not yet run"

# What each figure says, and what it is to be.
FIGURES = {
    "vs_explode_1m": ("time of explode-cells + equi-join / ours, 2 x 1,000,000 exact points, identical pairs", "≥ 10"),
    "vs_explode_100k": ("the same, 2 x 100,000 points", "≥ 2.5"),
    "of_empty_narrow": ("our rows/s / those of a stateful operator that only counts, Gaussian rows", "≥ 0.7"),
    "of_empty_samples": ("the same, rows of 100 samples in 3 dimensions", "≥ 0.5"),
    "batch_cost_growth": ("cost of a batch under a window 100 times longer with the same matches / under 1", "≤ 1.5"),
    "skew_max_over_mean": ("slowest of 8 tiles / mean one, half of all rows in one spot, planned tiles", "≤ 2"),
}


def main(arguments: list[str]) -> int:
    """Read the figures of a file or of stdin, and write the tables anew."""
    if len(arguments) > 1:
        sys.exit(f"give one file, or none to read stdin; got {' '.join(arguments)}")
    text = Path(arguments[0]).read_text(encoding="utf-8") if arguments else sys.stdin.read()
    made = table(figures(text))
    for page in PAGES:
        page.write_text(replaced(page.read_text(encoding="utf-8"), made, page.name), encoding="utf-8")
    return 0


def figures(text: str) -> dict[str, float]:
    """The figures of a run, from the last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            break
    else:
        sys.exit(f"there is no JSON object among the lines; run {COMMAND}")
    if unknown := sorted(set(found) - set(FIGURES)):
        sys.exit(f"unknown figures {', '.join(unknown)}; tools/figures.py knows {', '.join(FIGURES)}")
    return {str(name): float(value) for name, value in found.items()}


def table(found: dict[str, float]) -> str:
    """The figures as a markdown table, with the command that prints them."""
    lines = ["| figure | what it is | aim | measured |", "|---|---|---|---|"]
    for name, (what, aim) in FIGURES.items():
        measured = f"{found[name]:g}" if name in found else NOT_RUN
        lines.append(f"| `{name}` | {what} | {aim} | {measured} |")
    return "\n".join([*lines, "", f"Printed by `{COMMAND}`, written here by `python -m tools.figures`."])


def replaced(page: str, made: str, name: str) -> str:
    """The page with what is between its marks replaced."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{name} is to have one {BEGIN} and one {END}")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
