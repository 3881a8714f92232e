"""Which samples of two objects are close: the innermost loops of every join of sampled objects.

Samples of an object are stored dimension by dimension (all first coordinates, then all second ones), so that these
loops run over contiguous memory. One call for each pair of objects: a call costs as much as a hundred comparisons.

Of each sample of the one object ``upper`` tells how much of the other object is close to it at most; where that is
negative the sample is decided, and left out. ``found`` is what is close already, ``rest`` what the others may add. A
call ends with -1 as soon as both together cannot reach what is ``needed``, and early with what it has once that is
``enough``. It returns what it found and what it left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appulse.kernels.jit import kernel
from appulse.kernels.lanes import LANES, close_2, close_3, close_4, close_5

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

_ALL = (1 << LANES) - 1


@kernel
def close_count(
    own: Floats,
    others: Floats,
    n: int,
    m: int,
    d: int,
    limit2: float,
    upper: Floats,
    found: float,
    rest: float,
    needed: float,
    enough: float,
    scratch: NDArray[np.float64],
) -> tuple[float, float]:
    """How many pairs of samples are close, ``n`` samples against ``m``."""
    # The last 16 overlap those before; of them only bits not counted yet are kept.
    last = m - LANES
    whole = last + 1 if m >= LANES and 1 < d <= 5 else 0
    kept = _ALL & ~((1 << (-m % LANES)) - 1) if m % LANES else 0
    for s in range(n):
        if upper[s] < 0.0:
            continue
        near = 0
        if whole == 0:
            scratch[:m] = 0.0
            for i in range(d):
                for k in range(m):
                    a = own[i * n + s] - others[i * m + k]
                    scratch[k] += a * a
            for k in range(m):
                near += scratch[k] <= limit2
        elif d == 2:
            for at in range(0, whole, LANES):
                near += close_2(own, s, n, others, at, m, limit2, _ALL)
            if kept:
                near += close_2(own, s, n, others, last, m, limit2, kept)
        elif d == 3:
            for at in range(0, whole, LANES):
                near += close_3(own, s, n, others, at, m, limit2, _ALL)
            if kept:
                near += close_3(own, s, n, others, last, m, limit2, kept)
        elif d == 4:
            for at in range(0, whole, LANES):
                near += close_4(own, s, n, others, at, m, limit2, _ALL)
            if kept:
                near += close_4(own, s, n, others, last, m, limit2, kept)
        else:
            for at in range(0, whole, LANES):
                near += close_5(own, s, n, others, at, m, limit2, _ALL)
            if kept:
                near += close_5(own, s, n, others, last, m, limit2, kept)
        found += near
        rest -= upper[s]
        if found + rest < needed:
            return -1.0, 0.0
        if found >= enough:
            break
    return found, rest


@kernel
def close_mass(
    own: Floats,
    own_weights: Floats,
    others: Floats,
    weights: Floats,
    n: int,
    m: int,
    d: int,
    limit2: float,
    upper: Floats,
    found: float,
    rest: float,
    needed: float,
    enough: float,
    scratch: NDArray[np.float64],
) -> tuple[float, float]:
    """The weight of the pairs of samples that are close."""
    for s in range(n):
        if upper[s] < 0.0:
            continue
        near = 0.0
        if d == 2:
            y_0, y_1 = others[:m], others[m : 2 * m]
            for k in range(m):
                a = own[s] - y_0[k]
                b = own[n + s] - y_1[k]
                near += weights[k] if a * a + b * b <= limit2 else 0.0
        elif d == 3:
            y_0, y_1, y_2 = others[:m], others[m : 2 * m], others[2 * m : 3 * m]
            for k in range(m):
                a = own[s] - y_0[k]
                b = own[n + s] - y_1[k]
                c = own[2 * n + s] - y_2[k]
                near += weights[k] if a * a + b * b + c * c <= limit2 else 0.0
        else:
            scratch[:m] = 0.0
            for i in range(d):
                for k in range(m):
                    a = own[i * n + s] - others[i * m + k]
                    scratch[k] += a * a
            for k in range(m):
                near += weights[k] if scratch[k] <= limit2 else 0.0
        found += own_weights[s] * near
        rest -= own_weights[s] * upper[s]
        if found + rest < needed:
            return -1.0, 0.0
        if found >= enough:
            break
    return found, rest


@kernel
def close_samples(
    left: Ints,
    right: Ints,
    factor: Floats,
    d: int,
    limit2: float,
    left_mass: Floats,
    left_samples: Floats,
    left_begin: Ints,
    left_length: Ints,
    left_base: int,
    left_weights: Floats,
    left_weights_begin: Ints,
    left_weights_base: int,
    right_mass: Floats,
    right_samples: Floats,
    right_begin: Ints,
    right_length: Ints,
    right_base: int,
    right_weights: Floats,
    right_weights_begin: Ints,
    right_weights_base: int,
    first: Ints,  # where the sample pairs of each pair begin; written if `count`
    count: bool,  # count only
    out_left: NDArray[np.float64],
    out_right: NDArray[np.float64],
    out_weight: Floats,
) -> None:
    """The pairs of samples within the limit of each other (Dallachiesa et al. 2015, Eq. 20).

    Their weight is the product of both samples' weights and the ``factor`` of the pair of objects.
    """
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        n = left_length[a] // d
        m = right_length[b] // d
        a_begin = left_begin[a] - left_base
        b_begin = right_begin[b] - right_base
        at = 0 if count else first[i]
        for s in range(n):
            p = left_mass[a] / n
            if left_weights.shape[0] > 0:
                p = left_weights[left_weights_begin[a] - left_weights_base + s]
            for t in range(m):
                square = 0.0
                for k in range(d):
                    gap = left_samples[a_begin + k * n + s] - right_samples[b_begin + k * m + t]
                    square += gap * gap
                if square > limit2:
                    continue
                if not count:
                    q = right_mass[b] / m
                    if right_weights.shape[0] > 0:
                        q = right_weights[right_weights_begin[b] - right_weights_base + t]
                    for k in range(d):
                        out_left[at, k] = left_samples[a_begin + k * n + s]
                        out_right[at, k] = right_samples[b_begin + k * m + t]
                    out_weight[at] = p * q * factor[i]
                at += 1
        if count:
            first[i + 1] = first[i] + at
