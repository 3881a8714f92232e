"""A folder of results as a page: found out what it holds, and said what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import read_json

from appulse.errors import BadArgument
from appulse.model.uncertainty import Position
from appulse.report.encounters_page import encounters_page
from appulse.report.fences_page import fences_page
from appulse.report.field_page import phenomena_page
from appulse.report.join_page import join_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Shown", "page_file", "report"]

EVENTS, ANSWERS = ("events", "regions"), ("answers", "pairs", "matches")
ENCOUNTERS, VISITS = ("encounters",), ("visits", "fence_events")
#: What is drawn with other frames, by columns that nothing else has: the results, their file, and the frames.
_WITH_OTHERS = {
    ("closest_time",): ("encounters", "encounters", "readings"),
    ("phenomenon",): ("phenomena", "events", "readings and locations"),
    ("since",): ("events of fences", "fence_events", "fences and readings"),
    ("query", "start", "end"): ("visits to fences", "visits", "fences and readings"),
}
_OF_TRACKS = ("unit", "key", "time", "place")
LARGE = ("pairs",)  # columns of answers that no page needs
HELP = (
    "A page of phenomena needs events.parquet (or regions.parquet), readings.parquet and locations.parquet; a page of "
    "encounters needs encounters.parquet, and readings.parquet, or left.parquet and right.parquet; a page of fences "
    "needs visits.parquet (or fence_events.parquet), fences.parquet and readings.parquet; a page of a similarity join "
    "needs answers.parquet (or pairs, or matches), and shows rejects.parquet, metrics.jsonl (or what the job noted "
    "beside its checkpoint) and positions.parquet where they are. In place of a file there may be a folder of that "
    "name, as a sink of a job writes it."
)


@dataclass(frozen=True)
class Shown:
    """Names and units that files do not have.

    ``unit`` is that of places, ``time`` a column of the readings. Of encounters and fences, ``key`` and ``place`` are
    others. Of phenomena, ``place`` is the latitude and longitude of the locations. Of phenomena alone: the columns
    ``sensor`` and ``value`` and its ``value_unit``, the ``resolution`` (width of bins), and ``labels``, texts by value.
    """

    unit: str = ""
    value: str | None = None
    value_unit: str = ""
    resolution: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    time: str | None = None
    sensor: str | None = None
    key: str | None = None
    place: tuple[str, str] | None = None

    def settings(self, page: str, *applicable: str) -> dict[str, Any]:
        """Those given, of the applicable ones; `BadArgument` for another one that is given."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {name: value for name, value in given.items() if value not in ("", None, {})}
        if unfit := [name for name in given if name not in applicable]:
            known = f"It takes {', '.join(applicable)}" if applicable else "It takes none of these settings"
            raise BadArgument(f"A page of {page} has no {unfit[0].replace('_', ' ')}. {known}.")
        return given


def report(directory: str | Path, *, title: str | None = None, note: str = "", shown: Shown | None = None) -> str:
    """The page of what a folder holds: phenomena, encounters, visits to fences, or a similarity join's run.

    ``title`` is by default the folder's name; ``shown`` has names and units. Raises `BadArgument` where something is
    missing or unreadable, and for a setting that the page does not have.
    """
    shown = shown or Shown()
    folder = Path(directory)
    if not folder.is_dir():
        raise BadArgument(f"{folder} is not a folder. Name one that holds results. {HELP}")
    named = title or folder.resolve().name
    if (events := _first(folder, EVENTS)) is not None:
        readings, locations = (_needed(folder, name) for name in ("readings", "locations"))
        settings = shown.settings("phenomena", *(each.name for each in fields(shown) if each.name != "key"))
        settings["place"] = None if shown.place is None else Position(*shown.place)
        happened = _table(events)
        settings["labels"] = _labels(happened, shown.labels)
        return phenomena_page(happened, _table(readings), _table(locations), title=named, note=note, **settings)
    if (met := _first(folder, ENCOUNTERS)) is not None:
        left = _first(folder, ("left",))
        names = ("readings",) if left is None else ("left", "right")
        frames = [_table(_needed(folder, name)) for name in names]
        settings = shown.settings("encounters", *_OF_TRACKS)
        return encounters_page(_table(met), *frames, title=named, note=note, **settings)
    if (visits := _first(folder, VISITS)) is not None:
        fences, readings = (_table(_needed(folder, name)) for name in ("fences", "readings"))
        settings = shown.settings("visits to fences", *_OF_TRACKS)
        return fences_page(_table(visits), fences, readings, title=named, note=note, **settings)
    answers = _first(folder, ANSWERS) or (folder if _parts(folder) else None)
    if answers is None:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:20]) or "nothing"
        raise BadArgument(f"{folder} holds no results; there is {there}. {HELP}")
    shown.settings("a similarity join")
    pairs = _table(answers)
    if answers == folder:
        _refuse_others(folder, pairs.column_names)
    beside = folder.resolve().parent  # a job has its sinks side by side
    around = beside if answers == folder and _progress(beside) else folder
    rejects, positions = (_first(around, (name,)) for name in ("rejects", "positions"))
    return join_page(
        pairs,
        None if rejects is None else _table(rejects),
        [line for file in _progress(around) for line in _lines(file)],
        None if positions is None else _table(positions),
        title=named,
        note=note,
    )


def _labels(events: pa.Table, labels: Mapping[str, str]) -> dict[Any, str]:
    """Texts by the values of events, of texts by how these are written."""
    values = events["value"].unique().to_pylist() if labels and "value" in events.column_names else []
    written = {f"{value:.6g}" if isinstance(value, float) else str(value): value for value in values}
    if unknown := [name for name in labels if name not in written]:
        known = ", ".join(sorted(written)[:20]) or "missing"
        raise BadArgument(f"No phenomenon has the value {unknown[0]!r}. Values are {known}.")
    return {written[name]: text for name, text in labels.items()}


def _refuse_others(folder: Path, columns: Sequence[str]) -> None:
    """Raise `BadArgument` for results that are drawn with frames that are not in their folder, or not at all."""
    for own, (what, name, others) in _WITH_OTHERS.items():
        if set(own) <= set(columns):
            raise BadArgument(
                f"{folder} holds {what}, which are drawn with {others}. Give a folder that holds both: the {what} as "
                f"{name}.parquet or in a folder of that name, and {others} likewise."
            )
    if "left_key" not in columns:
        raise BadArgument(f"{folder} holds rows with {', '.join(columns)}, of which there is no page. {HELP}")


def page_file(directory: str | Path) -> Path:
    """Where the page goes if nobody says: into the folder; beside a sink, as all files in it are taken for rows."""
    folder = Path(directory).resolve()
    sink = _first(folder, (*EVENTS, *ANSWERS, *ENCOUNTERS, *VISITS)) is None and folder.is_dir() and _parts(folder)
    return folder.with_name(f"{folder.name}.html") if sink else folder / "report.html"


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    """The file or folder of one of some names."""
    paths = (path for name in names for path in (folder / f"{name}.parquet", folder / name))
    return next((path for path in paths if path.is_file() or (path.is_dir() and _parts(path))), None)


def _progress(folder: Path) -> list[Path]:
    """The files of metrics of a folder: the one that was put there, else what its one job noted of micro-batches."""
    if (given := folder / "metrics.jsonl").is_file():
        return [given]
    noted = sorted(folder.glob("*.progress.jsonl"))
    return [file for file in (Path(f"{noted[0]}.1"), noted[0]) if file.is_file()] if len(noted) == 1 else []


def _needed(folder: Path, name: str) -> Path:
    found = _first(folder, (name,))
    if found is None:
        raise BadArgument(f"{folder} has results, but no {name}.parquet. {HELP}")
    return found


def _parts(folder: Path) -> list[Path]:
    """The files of a sink, in order; what is hidden or empty holds no rows."""
    files = (path for path in folder.iterdir() if path.suffix in READERS and path.name[0] not in "._")
    return sorted(path for path in files if path.is_file() and path.stat().st_size)


def _table(path: Path) -> pa.Table:
    parts = [path] if path.is_file() else _parts(path)
    try:
        return pa.concat_tables([READERS[part.suffix](part) for part in parts], promote_options="permissive")
    except (OSError, pa.ArrowException) as error:
        raise BadArgument(f"{path} cannot be read: {error}") from error


def _parquet(part: Path) -> pa.Table:
    with pq.ParquetFile(part) as file:
        names = file.schema_arrow.names
        return file.read([name for name in names if "left_key" not in names or name not in LARGE])


READERS = {".parquet": _parquet, ".json": read_json}  # lines of JSON, as a job's sink of that format writes


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"{path} cannot be read as text: {error}") from error
