"""Files of this machine that a path of a job names, and columns that a job names."""

from __future__ import annotations

from glob import glob
from pathlib import Path

import pyarrow as pa

from appulse.errors import NotBuilt
from appulse.model.ddl import TYPES

__all__ = ["INSTEAD", "files_at", "schema_of_ddl"]

#: What to do about what is not built in process.
INSTEAD = "Set engine = 'spark' to run the job on Spark"


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


def schema_of_ddl(text: str, where: str) -> pa.Schema:
    """Columns as Spark's DDL has them, of plain types and arrays of such; raises `NotBuilt` for others."""
    fields = []
    for part in text.split(","):
        name, _, kind = part.strip().partition(" ")
        kind = kind.strip().lower().removesuffix(" not null")
        inner = kind.removeprefix("array<").removesuffix(">")
        known = TYPES.get(inner)
        if known is None or not name:
            raise NotBuilt(f"{where}: {part.strip()!r} is not built in process. Known: {', '.join(TYPES)}. {INSTEAD}.")
        fields.append(pa.field(name.strip("`"), pa.list_(known) if inner != kind else known))
    return pa.schema(fields)
