"""Two things that move straight past each other: their closest approach, and the mass of a capsule.

The relative path of the means is a segment. Its error is one displacement e, drawn once, so the two come within
epsilon with the probability that -e lies within epsilon of the segment: in a capsule. For an isotropic Gaussian, with
lengths in its deviation, let the segment run from a to b along its own line, and let the line pass the origin at the
distance h. Then r, how far -e is from the line, is non-central chi with d - 1 degrees, and the mass is the integral
over r <= R of

    density(r) * [Phi(b + w) - Phi(a - w)],   w = sqrt(R^2 - r^2)

taken over the angle, r = R sin(t), in which w is smooth up to the rim.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.gaussian import interval
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Beyond this many deviations a normal tail is below 1e-17.
_TAIL = 8.7
#: What is outside of a ball of this many deviations is below 1e-16.
ALL = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANEL = 5.0  # deviations that 16 nodes serve to 1e-13
#: Dimensions with a closed form across the line.
MOST_DIMENSIONS = 3


@exact_kernel
def segment_distance(begin: Floats, end: Floats) -> tuple[float, float]:
    """Of a segment, the least distance to the origin, and where on it that is, from 0 to 1."""
    square, along = 0.0, 0.0
    for k in range(begin.shape[0]):
        step = end[k] - begin[k]
        square += step * step
        along -= begin[k] * step
    at = min(1.0, max(0.0, along / square)) if square > 0.0 else 0.0
    total = 0.0
    for k in range(begin.shape[0]):
        place = begin[k] + at * (end[k] - begin[k])
        total += place * place
    return math.sqrt(total), at


@exact_kernel
def stretch_within(begin: Floats, end: Floats, group: Ints, g: int, limit: float) -> tuple[float, float]:
    """From where to where, from 0 to 1, a segment is within a limit of the origin; the first is larger if nowhere.

    Only dimensions of a group count. The nearest place is in, however small the limit is beside the rounding of others.
    """
    square, along = 0.0, 0.0
    for k in range(begin.shape[0]):
        if group[k] == g:
            step = end[k] - begin[k]
            square += step * step
            along -= begin[k] * step
    at = along / square if square > 0.0 else 0.0
    nearest = min(1.0, max(0.0, at))
    least, aside = 0.0, 0.0
    for k in range(begin.shape[0]):
        if group[k] == g:
            step = end[k] - begin[k]
            least += (begin[k] + nearest * step) ** 2
            aside += (begin[k] + at * step) ** 2
    if math.sqrt(least) > limit:
        return 1.0, 0.0
    if square == 0.0:
        return 0.0, 1.0
    half = math.sqrt(max(0.0, limit * limit - aside) / square)
    return max(0.0, min(nearest, at - half)), min(1.0, max(nearest, at + half))


@exact_kernel
def capsule_probability(begin: Floats, end: Floats, deviation: float, epsilon: float) -> float:
    """Probability that an isotropic Gaussian displacement lies within ``epsilon`` of a segment of 1 to 3 dimensions.

    ``deviation`` > 0 is that of one coordinate; absolute error below 1e-10.
    """
    d = begin.shape[0]
    square, before, after = 0.0, 0.0, 0.0
    for k in range(d):
        square += (end[k] - begin[k]) ** 2
    length = math.sqrt(square)
    for k in range(d):
        unit = (end[k] - begin[k]) / length if length > 0.0 else (1.0 if k == 0 else 0.0)
        before += begin[k] * unit
        after += end[k] * unit
    aside = 0.0
    for k in range(d):
        unit = (end[k] - begin[k]) / length if length > 0.0 else (1.0 if k == 0 else 0.0)
        aside += (begin[k] - before * unit) ** 2
    return capsule_mass(before / deviation, after / deviation, math.sqrt(aside) / deviation, epsilon / deviation, d)


@exact_kernel
def capsule_mass(a: float, b: float, h: float, big_r: float, d: int) -> float:
    """The same, of a segment from ``a`` to ``b`` along a line that passes the mean at ``h``; all in deviations."""
    if d == 1:
        return interval(a - big_r, b + big_r)
    if big_r - math.hypot(h, max(0.0, a, -b)) > ALL:
        return 1.0
    low, high = max(0.0, h - _TAIL), min(big_r, h + _TAIL)
    if low >= high:
        return 0.0
    # Between these, what lies along the line is all or nothing, or goes from one to the other.
    cuts = np.empty(6)
    cuts[0], cuts[1] = low, high
    n = 2
    for w in (-b - _TAIL, -b + _TAIL, a - _TAIL, a + _TAIL):
        if 0.0 < w < big_r:
            r = math.sqrt((big_r - w) * (big_r + w))
            if low < r < high:
                cuts[n] = r
                n += 1
    cuts = np.sort(cuts[:n])
    total = 0.0
    for i in range(n - 1):
        total += _between(cuts[i], cuts[i + 1], a, b, h, big_r, d)
    return min(1.0, max(0.0, total))


@exact_kernel
def _between(low: float, high: float, a: float, b: float, h: float, big_r: float, d: int) -> float:
    """The integral over a stretch of r."""
    from_angle, to_angle = math.asin(min(1.0, low / big_r)), math.asin(min(1.0, high / big_r))
    w = big_r * math.cos(0.5 * (from_angle + to_angle))
    if b + w < -_TAIL or a - w > _TAIL:
        return 0.0
    # The arc is longer than r and w are, and both have to be smooth on it, unless w does not matter.
    whole = b + w > _TAIL and a - w < -_TAIL
    if whole and d == 2:
        return interval(low - h, high - h) + interval(low + h, high + h)
    panels = max(1, math.ceil((high - low if whole else big_r * (to_angle - from_angle)) / _PANEL))
    total = 0.0
    for p in range(panels):
        begin = low + (high - low) * p / panels if whole else from_angle + (to_angle - from_angle) * p / panels
        width = (high - low if whole else to_angle - from_angle) / panels
        for i in range(_NODES.shape[0]):
            at = begin + 0.5 * width * (_NODES[i] + 1.0)
            weight = 0.5 * width * _WEIGHTS[i]
            if whole:
                total += weight * _across(at, h, d)
                continue
            cosine = math.cos(at)
            reach = big_r * cosine
            total += weight * reach * _across(big_r * math.sin(at), h, d) * interval(a - reach, b + reach)
    return total


@exact_kernel
def _across(r: float, h: float, d: int) -> float:
    """The density of the distance to a line that passes the mean at a distance h."""
    near = math.exp(-0.5 * (r - h) * (r - h))
    if d == 2:
        opposite = math.exp(-0.5 * (r + h) * (r + h)) if r + h < _TAIL else 0.0
        return 0.3989422804014327 * (near + opposite)
    return r * near * _bessel(r * h)


# Abramowitz and Stegun 9.8.1 and 9.8.2 hold to 1e-7, which is too little: Chebyshev series of exp(-x) I0(x), of Cephes.
_SMALL = np.array(
    [
        -4.41534164647933937950e-18,
        3.33079451882223809783e-17,
        -2.43127984654795469359e-16,
        1.71539128555513303061e-15,
        -1.16853328779934516808e-14,
        7.67618549860493561688e-14,
        -4.85644678311192946090e-13,
        2.95505266312963983461e-12,
        -1.72682629144155570723e-11,
        9.67580903537323691224e-11,
        -5.18979560163526290666e-10,
        2.65982372468238665035e-9,
        -1.30002500998624804212e-8,
        6.04699502254191894932e-8,
        -2.67079385394061173391e-7,
        1.11738753912010371815e-6,
        -4.41673835845875056359e-6,
        1.64484480707288970893e-5,
        -5.75419501008210370398e-5,
        1.88502885095841655729e-4,
        -5.76375574538582365885e-4,
        1.63947561694133579842e-3,
        -4.32430999505057594430e-3,
        1.05464603945949983183e-2,
        -2.37374148058994688156e-2,
        4.93052842396707084878e-2,
        -9.49010970480476444210e-2,
        1.71620901522208775349e-1,
        -3.04682672343198398683e-1,
        6.76795274409476084995e-1,
    ]
)
_LARGE = np.array(
    [
        -7.23318048787475395456e-18,
        -4.83050448594418207126e-18,
        4.46562142029675999901e-17,
        3.46122286769746109310e-17,
        -2.82762398051658348494e-16,
        -3.42548561967721913462e-16,
        1.77256013305652638360e-15,
        3.81168066935262242075e-15,
        -9.55484669882830764870e-15,
        -4.15056934728722208663e-14,
        1.54008621752140982691e-14,
        3.85277838274214270114e-13,
        7.18012445138366623367e-13,
        -1.79417853150680611778e-12,
        -1.32158118404477131188e-11,
        -3.14991652796324136454e-11,
        1.18891471078464383424e-11,
        4.94060238822496958910e-10,
        3.39623202570838634515e-9,
        2.26666899049817806459e-8,
        2.04891858946906374183e-7,
        2.89137052083475648297e-6,
        6.88975834691682398426e-5,
        3.36911647825569408990e-3,
        8.04490411014108831608e-1,
    ]
)


@exact_kernel
def _bessel(x: float) -> float:
    """exp(-x) I0(x), for x >= 0."""
    if x <= 8.0:
        return _series(0.5 * x - 2.0, _SMALL)
    return _series(32.0 / x - 2.0, _LARGE) / math.sqrt(x)


@exact_kernel
def _series(x: float, terms: Floats) -> float:
    """A Chebyshev series, by Clenshaw."""
    last, before, previous = 0.0, 0.0, 0.0
    for i in range(terms.shape[0]):
        before, previous = previous, last
        last = x * previous - before + terms[i]
    return 0.5 * (last - before)
