"""Files of this machine that a path of a job names."""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["are_parted", "files_at"]


def are_parted(place: str, files: Sequence[Path]) -> bool:
    """Whether files at a path lie in parts, whose names are columns."""
    folder = Path(place)
    return any(
        "=" in part for file in files if file.is_relative_to(folder) for part in file.relative_to(folder).parts[:-1]
    )


def files_at(place: str) -> list[Path]:
    """The data files at a path of this machine: itself, those of a folder, or of what a pattern names.

    Those of a folder may lie in parts, as in ``day=1/``.
    """
    path = Path(place)
    try:
        if path.is_file():
            return [path]
        named = [path] if path.is_dir() else map(Path, sorted(glob(place)))  # noqa: PTH207 - takes ** as Spark does
        inside = [file for one in named for file in (_inside(one) if one.is_dir() else [one])]
        return [file for file in inside if file.is_file() and not file.name.startswith(("_", "."))]
    except OSError:  # a name too long, a folder closed to us: nothing that can be read
        return []


def _inside(folder: Path) -> Iterator[Path]:
    """What a folder has, with that of its parts."""
    for one in sorted(folder.iterdir()):
        if "=" in one.name and not one.name.startswith(".") and one.is_dir():
            yield from _inside(one)
        else:
            yield one
