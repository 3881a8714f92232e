"""Whether the tests that look for data do without it: run in a copy of the checkout with nothing beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

__all__ = ["lone_failures"]

ROOT = Path(__file__).resolve().parent.parent


def lone_failures(*, quick: bool = True) -> int:
    """How many tests marked ``data`` fail in a lone copy of the checkout; ``quick`` leaves out those of Spark.

    Raises `RuntimeError` where they do not run at all.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy, report = Path(scratch) / "alone" / "checkout", Path(scratch) / "report.xml"
        _copied(copy)
        environment = {name: value for name, value in os.environ.items() if name != "APPULSE_DATA"}
        environment["PYTHONPATH"] = str(copy / "src")
        marks = f"data and not long{' and not spark' if quick else ''}"
        # In one process: most of the time goes into collecting all tests, which each process does for itself.
        options = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "-m", marks, f"--junitxml={report}"],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"The tests did not run alone: pytest ended with {done.returncode}.\n{done.stdout}")
        suites = ET.parse(report).iter("testsuite")  # noqa: S314 - pytest wrote it just now
        return sum(int(suite.attrib[kind]) for suite in suites for kind in ("failures", "errors"))


def _copied(to: Path) -> None:
    """The files of the checkout as they are now, and what was compiled of them."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    known = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    compiled = [str(file.relative_to(ROOT)) for file in (ROOT / "src").rglob("__pycache__/*.nb[ic]")]
    for name in (*known, *compiled):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)  # with its time, by which Numba knows what is up to date


if __name__ == "__main__":
    failed = lone_failures(quick="--quick" in sys.argv)
    print(f"{failed} tests that look for data fail where there is none")
    sys.exit(failed > 0)
