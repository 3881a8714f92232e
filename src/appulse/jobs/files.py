"""Files of this machine that a path of a job names."""

from __future__ import annotations

from glob import glob
from pathlib import Path

__all__ = ["files_at"]


def files_at(place: str) -> list[Path]:
    """The data files at a path of this machine: itself, those of a folder, or of what a pattern names."""
    path = Path(place)
    try:
        if path.is_file():
            return [path]
        named = [path] if path.is_dir() else map(Path, sorted(glob(place)))  # noqa: PTH207 - takes ** as Spark does
        inside = [file for one in named for file in (sorted(one.iterdir()) if one.is_dir() else [one])]
        return [file for file in inside if file.is_file() and not file.name.startswith(("_", "."))]
    except OSError:  # a name too long, a folder closed to us: nothing that can be read
        return []
