"""Advice on the thresholds of fences, from a sample of a stream."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.queries.call import CONDITION, UNTIL
from appulse.engines.swapped import Swapped
from appulse.engines.thresholds import within_tolerance
from appulse.errors import BadArgument
from appulse.model.covariance import flat_part, whitening
from appulse.model.regions import most_inside
from appulse.model.times import duration
from appulse.model.workers import Workers, cores
from appulse.operators.fence_advice import advise
from appulse.operators.numbering import in_canonical_order
from appulse.queries.regions import covered_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.model.stream import Stream

_SCHEMA = pa.schema(
    [
        pa.field("enter", pa.float64()),
        pa.field("leave", pa.float64()),
        pa.field("true_events", pa.float64()),
        pa.field("false_events", pa.float64()),
        pa.field("missed_events", pa.float64()),
        pa.field("delay", pa.float64()),
        pa.field("never", pa.int64()),
    ]
)


def advice_table(
    stream: Stream,
    table: pa.Table,
    fences: pa.Table,
    enter: Sequence[float],
    leave: Sequence[float],
    tolerance: Any,
    draws: int,
    seed: int,
) -> pa.Table:
    """What to expect of each choice, by ``enter`` and ``leave``."""
    choices = sorted({(high, low) for high in enter for low in leave if low <= high})
    if not choices:
        raise BadArgument(
            f"Each of leave={list(leave)} is above all of enter={list(enter)}: things would leave as they enter. "
            "Give leave at most enter."
        )
    if said := {CONDITION, UNTIL} & set(fences.column_names):
        raise BadArgument(f"fence_advice() has no use for the column {min(said)!r} of fences. Leave it out.")
    asked = FenceSettings(enter=choices[-1][0], leave=choices[0][1])
    bare = replace(stream, frame=None, carry=())  # what is carried stands in keys, which are things here
    call = resolve_fences(bare, table.schema, fences, asked, asked_by="fence_advice")
    rows, _ = call.encode(0, table)
    if not len(rows):
        raise BadArgument("The sample has no good row, so it has no errors to go by. Give some minutes of the stream.")
    regions, earth = call.fences.get().regions, call.plan.earth
    if earth is not None and rows.degrees is not None:
        swapped = Swapped()
        swapped.look(rows.degrees, partial(covered_rows, regions, earth=earth))
        swapped.warn()
    exact = [(within_tolerance(high), within_tolerance(low)) for high, low in choices]
    slack, workers = duration(tolerance, "tolerance"), Workers(cores())
    expected = advise(in_canonical_order(rows), regions, earth, exact, slack, draws, seed, workers)
    sharp = whitening(flat_part(rows.spread))
    sigma = float((sharp[:, 0] * sharp[:, 1]).max()) ** -0.5
    most = most_inside(regions.arrays, sigma, earth) if sigma > 0.0 else np.ones(len(regions.rows))
    columns = [
        [high for high, _ in choices],
        [low for _, low in choices],
        [one.true_events for one in expected],
        [one.false_events for one in expected],
        [one.missed_events for one in expected],
        [None if np.isnan(one.delay) else one.delay / 1e6 for one in expected],
        [int((most < high).sum()) for high, _ in exact],
    ]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
