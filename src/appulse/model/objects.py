"""A columnar batch of uncertain objects: what travels between stages, and what windows hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.strings import gather_runs
from appulse.model.strings import Bytes, Labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.model.uncertainty import Form


@dataclass(frozen=True, slots=True)
class Objects:
    """Rows of one stream, as flat arrays; ``n`` rows in ``d`` dimensions.

    ``centre`` is the probability-weighted mean. ``spread`` holds sigmas or a radius (n, 0, 1 or d columns),
    ``covariance`` the upper triangle by rows (n, d (d + 1) / 2; only where samples are held). The samples of row i
    begin at ``first[i]``, dimension by dimension; ``weights`` is empty where each row's samples weigh the same.
    ``reach`` is the alpha-reach: the radius within which the row must be looked for. ``measure`` is the attribute of
    a delta window; ``number`` a row's place in its window's order, and ``frame`` (n, streams) the least numbers that
    the windows held at its tick, once it has been numbered (beside them the newest, where rows may not exist).
    """

    form: Form
    time: NDArray[np.int64]
    key: Bytes
    mass: NDArray[np.float64]
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    reach: NDArray[np.float64]
    radius: NDArray[np.float64]
    covariance: NDArray[np.float64]
    first: NDArray[np.int64]
    samples: NDArray[np.float64]
    weights: NDArray[np.float64]
    group: Labels | None = None
    differ: Labels | None = None
    measure: NDArray[np.float64] | None = None
    number: NDArray[np.int64] | None = None
    frame: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.time)

    @property
    def d(self) -> int:
        return int(self.centre.shape[1])

    def slice(self, begin: int, end: int) -> Objects:
        """Rows ``begin`` to ``end``; arrays are views."""
        if len(self.first):
            first, low, high = self.first[begin : end + 1], int(self.first[begin]), int(self.first[end])
            first = first - low
        else:
            first, low, high = self.first, 0, 0
        return Objects(
            self.form,
            self.time[begin:end],
            self.key.slice(begin, end),
            self.mass[begin:end],
            self.centre[begin:end],
            self.spread[begin:end],
            self.reach[begin:end],
            self.radius[begin:end],
            self.covariance[begin:end],
            first,
            self.samples[low * self.d : high * self.d],
            self.weights[low:high] if len(self.weights) else self.weights,
            None if self.group is None else self.group.slice(begin, end),
            None if self.differ is None else self.differ.slice(begin, end),
            None if self.measure is None else self.measure[begin:end],
            None if self.number is None else self.number[begin:end],
            None if self.frame is None else self.frame[begin:end],
        )

    def take(self, index: NDArray[np.int64]) -> Objects:
        """The rows at ``index``, copied in that order."""
        if len(self.first):
            counts = np.diff(self.first)[index]
            first = np.zeros(len(index) + 1, np.int64)
            np.cumsum(counts, out=first[1:])
            samples = gather_runs(self.first[:-1] * self.d, np.diff(self.first) * self.d, 0, self.samples, index)[1]
            weights = (
                gather_runs(self.first[:-1], np.diff(self.first), 0, self.weights, index)[1]
                if len(self.weights)
                else self.weights
            )
        else:
            first, samples, weights = self.first, self.samples, self.weights
        return Objects(
            self.form,
            self.time[index],
            self.key.take(index),
            self.mass[index],
            self.centre[index],
            self.spread[index],
            self.reach[index],
            self.radius[index],
            self.covariance[index],
            first,
            samples,
            weights,
            None if self.group is None else self.group.take(index),
            None if self.differ is None else self.differ.take(index),
            None if self.measure is None else self.measure[index],
            None if self.number is None else self.number[index],
            None if self.frame is None else self.frame[index],
        )


def concat(parts: Sequence[Objects]) -> Objects:
    """Batches of one stream, one after the other."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    head = parts[0]
    ends = np.cumsum([0] + [len(part.samples) // max(1, part.d) for part in parts])
    first = head.first
    if len(head.first):
        first = np.concatenate([p.first[:-1] + end for p, end in zip(parts, ends[:-1], strict=True)] + [ends[-1:]])
    return Objects(
        head.form,
        np.concatenate([p.time for p in parts]),
        Bytes.concat([p.key for p in parts]),
        np.concatenate([p.mass for p in parts]),
        np.concatenate([p.centre for p in parts]),
        np.concatenate([p.spread for p in parts]),
        np.concatenate([p.reach for p in parts]),
        np.concatenate([p.radius for p in parts]),
        np.concatenate([p.covariance for p in parts]),
        first,
        np.concatenate([p.samples for p in parts]),
        np.concatenate([p.weights for p in parts]),
        _concat_labels([p.group for p in parts]),
        _concat_labels([p.differ for p in parts]),
        _concat_columns([p.measure for p in parts]),
        _concat_columns([p.number for p in parts]),
        _concat_columns([p.frame for p in parts]),
    )


def _concat_columns(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else None


def _concat_labels(parts: Sequence[Labels | None]) -> Labels | None:
    labels = [part for part in parts if part is not None]
    return Labels.concat(labels) if labels else None
