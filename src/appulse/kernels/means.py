"""The mean of what rows that may not exist bring, over all possible worlds in which they bring anything."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Nodes of the quadrature: n of them are exact for polynomials of a degree below 2 n. Beyond the most there are panels.
_FEWEST, _MOST = 4, 128
_PANEL, _FINER = 64, 4


class Alternatives(NamedTuple):
    """What rows may bring, as `expected_means` takes it."""

    row: Ints
    many: Ints
    total: Floats
    weight: Floats


def expected_means(cell: Ints, row: Ints, count: Ints, total: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Of each cell the expected mean of its values given that there are any, and the probability that there are.

    What is given are alternatives, in order of ``cell`` and within it of ``row``: row ``row`` is with probability
    ``weight`` such that it brings ``count`` values, at least one, which sum to ``total``. Rows are independent.

    With N values that sum to S: 1/N is the integral of t^(N-1) over [0, 1], so the mean over worlds of S/N is that of a
    polynomial: for each row what it adds, times the generating functions of the other rows' counts. Gauss-Legendre
    quadrature integrates it exactly up to degree 255. Beyond, it does so to rounding, in panels that halve towards 1,
    where alone the polynomial is large.
    """
    first = np.flatnonzero(np.append(True, np.diff(cell) != 0)) if len(cell) else np.empty(0, np.int64)
    bounds = np.append(first, len(cell))
    mean, exists = np.empty(len(first)), np.empty(len(first))
    degree = degrees_of(bounds, row, count)
    for nodes in _sizes(degree):
        mine = np.flatnonzero(_nodes(degree) == nodes)
        means_over(mine, bounds, Alternatives(row, count, total, weight), *_rule(nodes), mean, exists)
    return mean, exists


def _nodes(degree: Ints) -> Ints:
    wanted = np.maximum(degree // 2 + 1, _FEWEST).astype(np.float64)
    nodes: Ints = (2 ** np.ceil(np.log2(wanted))).astype(np.int64)
    return nodes


def _rule(nodes: int) -> tuple[Floats, Floats]:
    """Nodes in [0, 1] and their weights, for polynomials of a degree below twice ``nodes``."""
    at, share = np.polynomial.legendre.leggauss(min(nodes, _PANEL if nodes > _MOST else _MOST))
    at, share = (at + 1.0) / 2.0, share / 2.0
    if nodes <= _MOST:
        return at, share
    ends = np.append(1.0 - 0.5 ** np.arange(nodes.bit_length() + _FINER), 1.0)
    width = np.diff(ends)
    return (ends[:-1, None] + width[:, None] * at).ravel(), (width[:, None] * share).ravel()


def _sizes(degree: Ints) -> list[int]:
    sizes: list[int] = np.unique(_nodes(degree)).tolist()
    return sizes


@exact_kernel
def degrees_of(bounds: Ints, row: Ints, count: Ints) -> Ints:
    """The most values that each cell can have."""
    out = np.zeros(bounds.shape[0] - 1, np.int64)
    for c in range(out.shape[0]):
        i = bounds[c]
        while i < bounds[c + 1]:
            most, of = 0, row[i]
            while i < bounds[c + 1] and row[i] == of:
                most = max(most, count[i])
                i += 1
            out[c] += most
    return out


@exact_kernel
def means_over(
    cells: Ints,
    bounds: Ints,
    alternatives: Alternatives,
    nodes: Floats,
    shares: Floats,
    mean: Floats,
    exists: Floats,
) -> None:
    """Each cell's integral, by these nodes, divided by the probability that there is a value."""
    row, count, total, weight = alternatives
    for c in cells:
        none = 1.0
        integral = 0.0
        for k in range(-1, nodes.shape[0]):
            t = nodes[k] if k >= 0 else 0.0
            log_t = math.log(t) if k >= 0 else 0.0
            # Every row's generating function at t, multiplied up; what each adds, divided by its own.
            product, added = 1.0, 0.0
            i = bounds[c]
            while i < bounds[c + 1]:
                of, left, with_t, own = row[i], 1.0, 0.0, 0.0
                while i < bounds[c + 1] and row[i] == of:
                    left -= weight[i]
                    if k >= 0:
                        power = weight[i] * math.exp((count[i] - 1) * log_t)
                        with_t += power * t
                        own += power * total[i]
                    i += 1
                generating = max(left, 0.0) + with_t
                product *= generating
                if generating > 0.0:
                    added += own / generating
            if k < 0:
                none = product
            else:
                integral += shares[k] * added * product
        exists[c] = 1.0 - none
        mean[c] = integral / exists[c] if exists[c] > 0.0 else math.nan
