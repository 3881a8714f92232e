"""What travels between stages and stands in logs, in the format of `appulse.model.codec`; old blocks are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.spark import old_blocks
from appulse.engines.spark.old_blocks import origins
from appulse.kernels.packing import offsets_fit, restore
from appulse.model.batch import Ragged
from appulse.model.codec import from_columns, pack_batch, pack_columns, unpack_batch, unpack_columns
from appulse.model.objects import Objects
from appulse.operators.answers import Answers
from appulse.operators.partners import RowNotes
from appulse.operators.presence import ExistenceTable
from appulse.operators.window_starts import WindowStarts
from appulse.operators.withdrawals import Withdrawals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def pack(objects: Objects, stream: int, lane: int) -> bytes:
    """The objects as a block.

    Samples travel as float32 offsets from a rounded centre where these restore every coordinate exactly.
    """
    if objects.sample_runs is not None:
        samples = np.ascontiguousarray(objects.samples)
        short: NDArray[Any] = np.empty(len(samples), np.float32)
        if offsets_fit(objects.first, samples, origins(objects.centre, objects.radius), short):
            objects = replace(objects, sample_runs=Ragged(objects.first, short.reshape(-1, objects.d)))
    return pack_batch("objects", objects, (stream, lane))


def unpack(block: bytes) -> tuple[int, int, Objects]:
    """Stream, lane and objects of a block; arrays are views of it."""
    if block[:4] == old_blocks.OBJECTS:
        return old_blocks.objects_of(block)
    columns, (stream, lane) = unpack_columns("objects", block)
    runs, centre = columns.get("sample_runs"), columns["centre"]
    if runs is not None and runs.values.dtype == np.float32:
        samples = restore(runs.offsets, runs.values.reshape(-1), origins(centre, columns["radius"]))
        columns["sample_runs"] = Ragged(runs.offsets, samples.reshape(-1, centre.shape[1]))
    return stream, lane, from_columns(Objects, columns)


def pack_floors(floors: WindowStarts) -> bytes:
    """Windows that moved on, as bytes."""
    return pack_batch("floors", floors)


def unpack_floors(blob: bytes) -> WindowStarts:
    """What `pack_floors` packed."""
    if blob[:4] == old_blocks.ARRAYS:
        return old_blocks.floors_of(blob)
    return unpack_batch("floors", WindowStarts, blob, copied=True)


def pack_presence(presence: ExistenceTable) -> bytes:
    """What may not exist, as bytes."""
    return pack_batch("presence", presence)


def unpack_presence(blob: bytes) -> ExistenceTable:
    """What `pack_presence` packed."""
    if blob[:4] == old_blocks.ARRAYS:
        return old_blocks.presence_of(blob)
    return unpack_batch("presence", ExistenceTable, blob, copied=True)


def pack_notes(notes: RowNotes) -> bytes:
    """What is known of rows, as bytes."""
    return pack_batch("notes", notes)


def unpack_notes(blob: bytes) -> RowNotes:
    """What `pack_notes` packed."""
    return unpack_batch("notes", RowNotes, blob, copied=True)


def pack_pairs(pairs: Answers) -> bytes:
    """Pairs as bytes."""
    return pack_batch("pairs", pairs)


def unpack_pairs(blob: bytes) -> Answers:
    """What `pack_pairs` packed."""
    return unpack_batch("pairs", Answers, blob, copied=True)


def pack_withdrawals(asked: Withdrawals, stream: int) -> bytes:
    """Rows that withdraw others, as bytes."""
    return pack_batch("withdrawals", asked, (stream,))


def unpack_withdrawals(blob: bytes) -> tuple[int, Withdrawals]:
    """What `pack_withdrawals` packed, by stream."""
    columns, (stream,) = unpack_columns("withdrawals", blob, copied=True)
    return stream, from_columns(Withdrawals, columns)


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Named arrays as bytes."""
    return pack_columns("arrays", arrays)


def unpack_arrays(blob: bytes) -> dict[str, NDArray[Any]]:
    """What `pack_arrays` packed; arrays are copies."""
    if blob[:4] == old_blocks.ARRAYS:
        return old_blocks.arrays_of(blob)
    return unpack_columns("arrays", blob, copied=True)[0]
