"""Contestants in environments of their own: a script of this folder, run beside us with the packages it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import say

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["aside"]

_HERE = Path(__file__).resolve().parent
_PATIENCE = 900  # seconds


def aside(script: str, packages: Sequence[str], *given: object) -> dict[str, Any] | None:
    """What a script prints as JSON on its last line; None, with the reason said, where it cannot be had.

    Its environment is made once, in ``.venv-rivals`` of the checkout, and again where other packages are asked for.
    """
    folder = _HERE.parent / ".venv-rivals" / script
    python, stamp = folder / "bin" / "python", folder / "packages.txt"
    wanted = "\n".join(packages)
    try:
        if not stamp.exists() or stamp.read_text() != wanted:
            say(f"{script}: making {folder}")
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
            stamp.write_text(wanted)
        printed = _run([str(python), str(_HERE / "rivals" / f"{script}.py"), *map(str, given)])
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
        reason = getattr(problem, "stderr", "") or str(problem)
        say(f"{script} cannot be had: {reason.strip().splitlines()[-1] if reason.strip() else problem!r}")
        return None
    return found


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE).stdout
