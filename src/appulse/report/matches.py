"""Answers of a similarity join as columns of numbers, and the figures of its run, micro-batch by micro-batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument
from appulse.model.columns import chunk, floats, is_numeric
from appulse.model.times import is_time
from appulse.report.meridian import longitude_middle, near
from appulse.report.page import isolated
from appulse.report.readings import micros_of
from appulse.report.tracks import LONGITUDES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from appulse.kernels.arrays import Floats, Ints

__all__ = ["Batch", "Matches", "batches_of", "funnel", "matches_of", "middles"]

SIDES = ("left", "right")
_CARRIED = (("lon", "lat"), ("longitude", "latitude"), ("x", "y"))
KILOMETRES = 6371.0088 * np.pi / 180.0  # of a degree
NEEDED = (*(f"{side}_{what}" for side in SIDES for what in ("stream", "key", "time")), "distance", "probability")
BOUNDS = (
    "reach",
    "mass",
    "cantelli",
    "markov",
    "square",
    "sample",
    "projection",
    "window",
)  # in the order they are asked


@dataclass(frozen=True)
class Matches:
    """Pairs in order of the later row's time; ``lag`` is the right time less the left one, in microseconds."""

    table: pa.Table
    micros: Ints
    lag: Ints
    distance: Floats
    probability: Floats
    stamps: bool
    zone: str
    left: int
    alone: int

    def __len__(self) -> int:
        return len(self.micros)

    def streams(self) -> list[tuple[str, int]]:
        """Pairs of streams and how many matches they have, most first."""
        coded = [
            chunk(self.table[f"{side}_stream"]).cast(pa.string()).fill_null("?").dictionary_encode() for side in SIDES
        ]
        names = [pa.array(map(isolated, one.dictionary.to_pylist()), pa.string()).take(one.indices) for one in coded]
        pairs = pc.binary_join_element_wise(names[0], names[1], " and ").value_counts().to_pylist()
        return sorted(((pair["values"], pair["counts"]) for pair in pairs), key=lambda pair: (-pair[1], pair[0]))


def matches_of(answers: pa.Table) -> Matches:
    """The pairs of a table of answers, with how many rows had no partner.

    Of changes those that entered, with how many left again.
    """
    if missing := [name for name in NEEDED if name not in answers.column_names]:
        raise BadArgument(
            f"The answers have no column {', '.join(missing)}. They have: {', '.join(answers.column_names)}. Give what "
            "appulse.similarity_join() answers."
        )
    total = len(answers)
    if "change" in answers.column_names:
        answers = answers.filter(pc.greater(answers["change"], 0))
    entered = len(answers)
    answers = answers.filter(pc.and_(*(pc.is_valid(answers[f"{side}_key"]) for side in SIDES)))
    (left, _), (right, _) = (micros_of(answers, f"{side}_time") for side in SIDES)
    later = np.maximum(left, right)
    order = np.argsort(later, kind="stable")
    kind = answers.schema.field("left_time").type
    return Matches(
        answers.take(pa.array(order)),
        later[order],
        (right - left)[order],
        floats(answers["distance"])[order],
        floats(answers["probability"])[order],
        is_time(kind),
        "UTC" if getattr(kind, "tz", None) else "",
        total - entered,
        entered - len(answers),
    )


def middles(matches: Matches, rows: Ints, positions: pa.Table) -> tuple[Floats, list[str]]:
    """Half way between the two rows of some matches, by a table of positions by key; NaN where one is not known."""
    names = positions.column_names
    axes = [name for name in names if is_numeric(positions.schema.field(name).type) and name not in ("key", "stream")]
    if "key" not in names or len(axes) != 2:
        raise BadArgument(
            f"The positions have the columns {', '.join(names)}. Give key, two columns of numbers, and, where keys of "
            "streams have the same names, stream."
        )
    streams = [str(name) for name in positions["stream"].to_pylist()] if "stream" in names else None
    keys = [str(key) for key in positions["key"].to_pylist()]
    place = {name: row for row, name in enumerate(keys if streams is None else zip(streams, keys, strict=True))}
    at = np.column_stack([floats(positions[name]) for name in axes])
    at = np.concatenate([at, np.full((1, 2), np.nan)])
    sides = []
    for side in SIDES:
        some = matches.table.select([f"{side}_stream", f"{side}_key"]).take(pa.array(rows)).to_pydict()
        of = zip(*(map(str, column) for column in some.values()), strict=True)
        sides.append(at[[place.get(pair if streams else pair[1], len(at) - 1) for pair in of]])
    found = np.column_stack([_half_way(sides[0][:, i], sides[1][:, i], axis) for i, axis in enumerate(axes)])
    return found, axes


def _half_way(left: Floats, right: Floats, axis: str) -> Floats:
    """The middles of pairs of coordinates; of longitudes beside each other, also over the 180th meridian."""
    if axis.lower() not in LONGITUDES:
        return (left + right) / 2
    found = (left + near(right, left)) / 2
    return near(found, longitude_middle(found))


def carried_middles(matches: Matches, rows: Ints) -> tuple[Floats, list[str]] | None:
    """As `middles`, by coordinates that the streams carry; degrees become kilometres from the middle of all."""
    names = matches.table.column_names
    for east, north in _CARRIED:
        if not all(f"{side}_{name}" in names for side in SIDES for name in (east, north)):
            continue
        some = matches.table.take(pa.array(rows))
        if not all(is_numeric(some[f"{side}_{name}"].type) for side in SIDES for name in (east, north)):
            continue
        at = [_half_way(floats(some[f"left_{name}"]), floats(some[f"right_{name}"]), name) for name in (east, north)]
        if east == "x":
            return np.column_stack(at), [east, north]
        with np.errstate(invalid="ignore"):
            centre = [np.nanmean(part) if np.isfinite(part).any() else 0.0 for part in at]
        off = [(part - middle) * KILOMETRES for part, middle in zip(at, centre, strict=True)]
        return np.column_stack([off[0] * np.cos(np.radians(at[1])), off[1]]), ["km east", "km north"]
    return None


@dataclass(frozen=True)
class Batch:
    """What a micro-batch did; ``began`` is microseconds since 1970, ``lag`` seconds behind the newest row."""

    number: int
    began: int | None
    rows: float | None
    seconds: float | None
    lag: float | None
    figures: dict[str, float]


def batches_of(lines: Iterable[str]) -> tuple[list[Batch], int]:
    """The micro-batches of a file of JSON objects, of `appulse.listen` or ``appulse run --json``, and lines left out.

    Where several queries report, those of the query that reports most often; a batch reported twice counts once, and
    what stands before a batch 0 is of a checkpoint that has gone.
    """
    stages: dict[str, dict[int, Batch]] = {}
    wrong = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            query, batch = str(found.get("query_id", "")), _batch(found)
        except (ValueError, TypeError, KeyError, AttributeError):
            wrong += 1
            continue
        known = stages.setdefault(query, {})
        if batch.number == 0:
            known.clear()
        known[batch.number] = batch
    if not stages:
        return [], wrong
    most = max(stages.values(), key=len)
    wrong += sum(len(batches) for batches in stages.values()) - len(most)
    return sorted(most.values(), key=lambda batch: batch.number), wrong


def _batch(found: Mapping[str, Any]) -> Batch:
    figures = found.get("metrics", found)
    known = {
        str(name): float(value)
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    number = found["batch_id"] if "batch_id" in found else found["batch"]
    stamp = found.get("timestamp") or found.get("at")
    began = None if stamp is None else round(datetime.fromisoformat(stamp).timestamp() * 1e6)
    rows, seconds, lag = (_number(found.get(name)) for name in ("input_rows", "batch_seconds", "lag_seconds"))
    return Batch(int(number), began, rows, seconds, lag, known)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def funnel(batches: list[Batch]) -> list[tuple[str, int, int]]:
    """What became of the candidates: per step its name, how many pairs it settled, and how many it left over.

    The last rows are the pairs that were accepted by a bound, those that were refined, and the answers.
    """
    sums: dict[str, int] = {}
    for batch in batches:
        for name, value in batch.figures.items():
            sums[name] = sums.get(name, 0) + round(value)
    over = sums.get("candidates", 0)
    if not over:
        return []
    others = sorted(name for name in sums if name.startswith("pruned_") and name[7:] not in BOUNDS)
    stages = [("candidates of the index", 0, over)]
    steps = [("elsewhere", "left to another tile"), *((f"pruned_{b}", f"bound: {b}") for b in BOUNDS)]
    for name, said in (*steps, *((name, f"bound: {name[7:]}") for name in others)):
        if settled := sums.get(name, 0):
            over -= settled
            stages.append((said, settled, max(over, 0)))
    stages.append(("of them accepted by a bound", 0, sums.get("accepted", 0)))
    stages.append(("of them refined", 0, sums.get("refined", 0)))
    stages.append(("answers", 0, sums.get("answers", 0)))
    return stages
