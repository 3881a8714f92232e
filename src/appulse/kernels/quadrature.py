"""Gauss-Kronrod quadrature: 15 nodes on [-1, 1], and two rules over them, whose difference says how good they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.jit import template

if TYPE_CHECKING:
    from collections.abc import Callable

    from appulse.kernels.arrays import Floats

# Nodes from -1 to 0, and their weights; the rest mirrors them.
_HALF_NODES = [-0.991455371120812639, -0.949107912342758525, -0.864864423359769073, -0.741531185599394440]
_HALF_NODES += [-0.586087235467691130, -0.405845151377397167, -0.207784955007898468, 0.0]
_KRONROD = [0.022935322010529225, 0.063092092629978553, 0.104790010322250184, 0.140653259715525919]
_KRONROD += [0.169004726639267903, 0.190350578064785410, 0.204432940075298892, 0.209482141084727828]
_GAUSS = [0.0, 0.129484966168869693, 0.0, 0.279705391489276668, 0.0, 0.381830050505118945, 0.0, 0.417959183673469388]
NODES = np.array(_HALF_NODES + [-x for x in _HALF_NODES[-2::-1]])
FINE, COARSE = np.array(_KRONROD + _KRONROD[-2::-1]), np.array(_GAUSS + _GAUSS[-2::-1])
# Parts of a piece that wait to be halved.
_MOST_PARTS = 64


@template
def integral(value: Callable[[float, Any], float], given: Any, edges: Floats, scale: float, error: float) -> float:
    """``scale`` times the integral of ``value(x, given)`` from the first of the sorted edges to the last.

    Each piece between two edges is halved until the rules agree to ``error``.
    """
    stack, total = np.empty((_MOST_PARTS, 2)), 0.0
    narrow = 1e-12 * (edges[-1] - edges[0])
    for c in range(edges.shape[0] - 1):
        stack[0, 0], stack[0, 1] = edges[c], edges[c + 1]
        parts = 1 if edges[c + 1] > edges[c] else 0
        while parts > 0:
            parts -= 1
            begin, end = stack[parts, 0], stack[parts, 1]
            middle, half = 0.5 * (begin + end), 0.5 * (end - begin)
            fine, coarse = 0.0, 0.0
            for i in range(NODES.shape[0]):
                at = value(middle + half * NODES[i], given)
                fine += FINE[i] * at
                coarse += COARSE[i] * at
            if abs(fine - coarse) * half * scale <= error or parts + 2 > _MOST_PARTS or end - begin <= narrow:
                total += fine * half * scale
            else:
                stack[parts, 0], stack[parts, 1] = begin, middle
                stack[parts + 1, 0], stack[parts + 1, 1] = middle, end
                parts += 2
    return total
