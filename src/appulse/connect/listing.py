"""The names of files at a path, listed without a look at each of them."""

from __future__ import annotations

import os
import time
from glob import glob, has_magic
from pathlib import Path

__all__ = ["Listing", "relative"]

#: Nanoseconds after which a folder would have another time, had it changed since.
_SETTLED = 100_000_000


class Listing:
    """The data files at a path of this machine: itself, those of a folder or its parts, or of what a pattern names.

    Names are relative to ``root``, the folder above all that the path names.
    """

    def __init__(self, place: str) -> None:
        self.place, self.root = place, _root(place)
        self._times: dict[Path, int] = {}  # of the folders that were listed

    @property
    def unchanged(self) -> bool:
        """Whether folders have the times that they had when they were listed, as long as these say something."""
        try:
            return bool(self._times) and all(one.stat().st_mtime_ns == at for one, at in self._times.items())
        except OSError:
            return False

    def names(self) -> set[str]:
        """The names that are there; none where nothing can be read."""
        self._times = {}
        now, place = time.time_ns(), Path(self.place)
        root = self.root = _root(self.place)
        try:
            if root == self.place:
                found = self._inside(place, "")
                if any(at > now - _SETTLED for at in self._times.values()):
                    self._times = {}
                return found
            if place.is_file():
                return {place.name}
            found = set()
            for one in map(Path, glob(self.place)):  # noqa: PTH207 - takes ** as Spark does
                name = str(one.relative_to(root))
                if one.is_dir():
                    found |= self._inside(one, f"{name}/")
                elif _is_data(one.name) and one.is_file():
                    found.add(name)
        except OSError:  # a name too long, a folder closed to us
            found = set()
        self._times = {}
        return found

    def _inside(self, folder: Path, before: str) -> set[str]:
        """The names that a folder has, with those of its parts."""
        self._times[folder] = folder.stat().st_mtime_ns
        found = set()
        with os.scandir(folder) as entries:
            for one in entries:
                if "=" in one.name and not one.name.startswith(".") and one.is_dir():
                    found |= self._inside(Path(one.path), f"{before}{one.name}/")
                elif _is_data(one.name) and one.is_file():
                    found.add(before + one.name)
        return found


def relative(path: str, place: str) -> str | None:
    """The name that a listing of a place gives to a path; None where it is elsewhere."""
    if path == place:
        return Path(path).name
    folder = Path(_root(place) if has_magic(place) else place)
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else None


def _root(place: str) -> str:
    if Path(place).is_dir():
        return place
    above = Path(place).parent
    while has_magic(str(above)):
        above = above.parent
    return str(above)


def _is_data(name: str) -> bool:
    return not name.startswith(("_", "."))
