"""Contestants in environments of their own: scripts of ``rivals``, run beside us with the packages they need.

``python -m benchmarks.aside`` makes all the environments.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import say

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PACKAGES", "Beside", "aside", "environment"]

_HERE = Path(__file__).resolve().parent
_PATIENCE = 900  # seconds
_PROBLEMS = (OSError, subprocess.SubprocessError, ValueError, IndexError)

_SEDONA = ("apache-sedona==1.8.0", "pandas<3", "shapely", "pyarrow>=18", "setuptools")
_SEDONADB = ("sedonadb==0.5.0", "geoarrow-pyarrow==0.3.0", "pyarrow>=18", "numpy")
#: What each script needs.
PACKAGES = {
    "astropy_match": ("astropy==8.0.2", "scipy", "pyarrow>=18"),
    "faiss_range": ("faiss-cpu==1.15.1", "numpy>=2"),
    "meos": ("pymeos==1.3.0", "pyarrow>=18"),
    "polygon_matches": (
        *_SEDONADB,
        *("duckdb==1.5.5", "duckdb-extension-spatial==1.5.5", "geopandas==1.1.1", "shapely>=2.1"),
    ),
    "pykdtree_nn": ("pykdtree==1.4.3", "numpy>=2", "pyarrow>=18"),
    "sedona_knn": ("pyspark==4.0.1", *_SEDONA),
    "sedona_pairs": ("pyspark==4.0.5", *_SEDONA),
    "sedona_polygons": ("pyspark==4.0.5", *_SEDONA),
    "sedonadb_pairs": _SEDONADB,
    "traffic_cpa": ("traffic==2.13", "pandas<3", "pyarrow>=18"),
}


def environment(script: str) -> Path:
    """The Python of a script: made once, in ``.venv-rivals`` of the checkout, and again for other packages."""
    packages = PACKAGES[script]
    folder = _HERE.parent / ".venv-rivals" / script
    python, stamp = folder / "bin" / "python", folder / "packages.txt"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"{script}: making {folder}")
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
        stamp.write_text(wanted)
    return python


def aside(script: str, *given: object) -> dict[str, Any] | None:
    """What a script prints as JSON on its last line; None, with the reason said, where it cannot be had."""
    try:
        found: dict[str, Any] = json.loads(_run(_command(script, given)).splitlines()[-1])
    except _PROBLEMS as problem:
        say(f"{script} cannot be had: {_reason(problem)}")
        return None
    return found


class Beside:
    """A script that sets itself up while we do, prints a line once it has, and goes on when it is given one."""

    def __init__(self, script: str, *given: object) -> None:
        self._script, self._running, self._said = script, None, tempfile.TemporaryFile("w+")  # noqa: SIM115
        try:
            command, pipe = _command(script, given), subprocess.PIPE
            self._running = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, text=True)
        except _PROBLEMS as problem:
            say(f"{script} cannot be had: {_reason(problem)}")

    def wait(self) -> None:
        """Until it is set up, so that it takes no more time from others."""
        if self._running is not None and self._running.stdout is not None:
            self._running.stdout.readline()

    def result(self) -> dict[str, Any] | None:
        """As `aside`, of what it does from now on."""
        if self._running is None:
            return None
        try:
            printed, _ = self._running.communicate("\n", timeout=_PATIENCE)
            found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        except _PROBLEMS:
            self._running.kill()
            self._said.seek(0)
            said = self._said.read().splitlines() or ["it ended"]
            say(f"{self._script} cannot be had: {said[-1]}")
            return None
        return found


def _command(script: str, given: Sequence[object]) -> list[str]:
    return [str(environment(script)), str(_HERE / "rivals" / f"{script}.py"), *map(str, given)]


def _reason(problem: Exception) -> str:
    reason: str = (getattr(problem, "stderr", "") or str(problem)).strip()
    return reason.splitlines()[-1] if reason else repr(problem)


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE).stdout


if __name__ == "__main__":
    for name in PACKAGES:
        try:
            environment(name)
        except _PROBLEMS as problem:
            say(f"{name} cannot be had: {_reason(problem)}")
