"""Samples of a user's table, checked: one list of points a row, with or without weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.model import defects as why
from appulse.model.batch import Batch, Ragged
from appulse.model.columns import chunk, floats, is_numeric, lengths

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.defects import Defects
    from appulse.model.uncertainty import Samples

ABOVE_ONE = 1.0 + 1e-9  # what rounding of parts may make of 1


@dataclass
class Weighted(Batch):
    """Points (m, d), and their weights: None where those of a row weigh the same."""

    points: Floats
    weights: Floats | None = None


def checked_samples(table: pa.Table, model: Samples, d: int | None, defects: Defects) -> Ragged[Weighted]:
    """The samples that weigh anything; no others are looked at."""
    column = chunk(table[model.column])
    counts = lengths(column)
    defects.mark(counts == 0, why.EMPTY_SAMPLES, f"column {model.column!r} is null or empty")
    first = np.concatenate([[0], np.cumsum(counts)])
    inner = column.flatten()
    if is_numeric(column.type.value_type):
        flat, widths = floats(inner), np.ones(len(inner), np.int64)
    else:
        flat = floats(inner.flatten())
        widths = lengths(inner)
    d = 1 if d is None else d
    even = widths == d
    if model.weights is None and even.all() and np.isfinite(flat).all():
        return Ragged(first, Weighted(flat.reshape(-1, d)))
    weights, counted = weights_of(table, model, counts)
    owner = np.repeat(np.arange(len(table)), counts)
    uneven = np.zeros(len(table), bool)
    uneven[owner[counted & ~even]] = True

    def dimension(i: int) -> str:
        own = slice(first[i], first[i + 1])
        found = sorted(set(widths[own][counted[own]].tolist()))
        return f"samples have {found} coordinates, the call has {d} dimensions"

    defects.mark(uneven, why.WRONG_DIMENSION, why.each(dimension))
    rows = np.full((len(inner), d), np.nan)
    rows[even] = flat[np.repeat(even, widths)].reshape(-1, d)
    odd = np.zeros(len(table), bool)
    odd[owner[counted & ~np.isfinite(rows).all(axis=1)]] = True
    defects.mark(odd, why.NON_FINITE, f"a sample of {model.column!r} is null, NaN or infinite")
    if weights is None:
        return Ragged(first, Weighted(rows))
    weights = _check_weights(table, model, weights, first, defects)
    kept = np.flatnonzero(weights != 0.0)
    ends = np.cumsum(np.bincount(owner[kept], minlength=len(table)))
    return Ragged(np.concatenate([[0], ends]), Weighted(rows[kept], weights[kept]))


def weights_of(table: pa.Table, model: Samples, counts: Ints) -> tuple[Floats | None, Flags]:
    """The weight of each sample (None: they weigh the same), and which samples count: all but those of weight 0.

    Rows that do not have a weight for each sample have zeros, and all their samples count.
    """
    every = np.ones(int(counts.sum()), bool)
    if model.weights is None:
        return None, every
    column = chunk(table[model.weights])
    given = lengths(column)
    fits, rows = given == counts, np.arange(len(table))
    weights, fitting = np.zeros(len(every)), fits[np.repeat(rows, counts)]
    weights[fitting] = floats(column.flatten())[fits[np.repeat(rows, given)]]
    return weights, ~fitting | (weights != 0.0)


def _check_weights(table: pa.Table, model: Samples, weights: Floats, first: Ints, defects: Defects) -> Floats:
    """Mark rows whose weights cannot be used; the others' sum to at most 1."""
    counts, n = np.diff(first), len(table)
    given = lengths(chunk(table[model.weights]))
    defects.mark(
        given != counts, why.WRONG_DIMENSION, why.each(lambda i: f"{given[i]} weights for {counts[i]} samples")
    )
    owner = np.repeat(np.arange(n), counts)
    odd, negative = np.zeros(n, bool), np.zeros(n, bool)
    odd[owner[~np.isfinite(weights)]] = True
    defects.mark(odd, why.NON_FINITE, f"a weight of {model.weights!r} is null, NaN or infinite")
    negative[owner[weights < 0]] = True
    defects.mark(
        negative,
        why.NEGATIVE_WEIGHT,
        why.each(lambda i: f"the least weight is {weights[first[i] : first[i + 1]].min()}"),
    )
    total = np.bincount(owner, np.where(np.isfinite(weights), weights, 0.0), n)
    defects.mark(total > ABOVE_ONE, why.WEIGHTS_ABOVE_ONE, why.of_values("weights sum to ", total))
    defects.mark(total <= 0.0, why.EMPTY_SAMPLES, f"all weights of {model.weights!r} are zero")
    scaled: Floats = np.where(total[owner] > 1.0, weights / np.maximum(total[owner], 1e-300), weights)
    return scaled
