"""Files that are there after a power cut: what a folder lists is written apart from what its files hold."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["put_in_place", "sync"]


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def put_in_place(fresh: Path, file: Path) -> None:
    """Rename a file that is on disk, in place of another, and have its name on disk too."""
    fresh.replace(file)
    sync(file.parent)
