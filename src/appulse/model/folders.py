"""Folders that a query writes to, and others that it has: whether two are one, or one lies in the other."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from itertools import combinations, product, takewhile
from pathlib import Path
from typing import NamedTuple

__all__ = ["Clash", "clashes"]

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):(?://([^/]*))?", re.IGNORECASE)
_PATTERN = re.compile(r"[*?\[]")
# What may stand for several names of a path.
_MANY = re.compile(r"\*\*$|.*[{}]")


# Folders that readers of files pass over.
_HIDDEN = ("_", ".")


class Clash(NamedTuple):
    """A folder, by its name, that is not apart from another one, and what is wrong with that."""

    name: str
    problem: str


class _Folder(NamedTuple):
    store: str
    parts: tuple[str, ...]


def clashes(written: dict[str, str], others: dict[str, str]) -> list[Clash]:
    """Which folders that are ``written``, by their names, are, lie in or contain another of them, or of the ``others``.

    Paths are compared as they are on this machine, through links; those of a store by their names. One of the others
    may be a pattern, as Spark has them. What lies in a folder named ``_checkpoint`` or ``.checkpoint`` is hidden there.
    """
    pairs = [(other, one) for one, other in combinations(written, 2)] + list(product(written, others))
    known = {name: _folder(path) for name, path in (written | others).items()}
    found = []
    for mine, other in pairs:
        if (how := _related(known[mine], known[other])) is not None:
            place = "" if how == "is" else f" {(written | others)[other]},"
            problem = f"{written[mine]} {how}{place} the folder of {other}. Files of one would be removed, or read, as "
            found.append(Clash(mine, f"{problem}those of the other. Give each a folder of its own, none in the other."))
    return found


def _folder(path: str) -> _Folder:
    scheme = _SCHEME.match(path)
    if scheme is None or scheme[1].lower() == "file":
        return _Folder("", Path(os.path.realpath(path if scheme is None else path[scheme.end() :])).parts[1:])
    store = re.sub("^s3[an]$", "s3", scheme[1].lower())
    inside = os.path.normpath(f"/{path[scheme.end() :]}")
    return _Folder(f"{store}://{scheme[2] or ''}", tuple(part for part in inside.split("/") if part))


def _related(mine: _Folder, other: _Folder) -> str | None:
    """What a folder is to another, in words; None if they are apart."""
    fixed = list(takewhile(lambda name: not _MANY.match(name), other.parts))
    if mine.store != other.store or not all(map(_alike, mine.parts, fixed)):
        return None
    if mine.parts == other.parts:
        return "is"
    inside = len(mine.parts) >= len(fixed)
    below = mine.parts[len(fixed) :] if inside else other.parts[len(mine.parts) :]
    if below and below[0].startswith(_HIDDEN):
        return None
    return "lies in" if inside else "contains"


def _alike(name: str, other: str) -> bool:
    """Whether a name of a path is another one, which may be a pattern."""
    return name == other or (_PATTERN.search(other) is not None and fnmatchcase(name, other))
