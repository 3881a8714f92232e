"""A columnar batch of uncertain objects: what travels between stages, and what windows hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.strings import digest_words
from appulse.model.batch import SHARED, Batch

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.batch import Ragged
    from appulse.model.strings import Bytes, Labels
    from appulse.model.uncertainty import Form

_DIGEST = 16  # bytes
_NO_INTEGERS, _NO_FLOATS = np.empty(0, np.int64), np.empty(0)


def contents(objects: Objects) -> pa.Array:
    """A digest of what each row holds: equal for equal rows."""
    if len(objects.first) or objects.weight_runs is not None or objects.group is not None:
        return pa.array(contents_of(objects), pa.binary(_DIGEST)).cast(pa.binary())
    found = np.empty((len(objects), 2), np.uint64)
    digest_words(_numbers(objects).view(np.uint64), found)
    given = pa.Array.from_buffers(pa.binary(_DIGEST), len(objects), [None, pa.py_buffer(found)])
    return given.cast(pa.binary())


def contents_of(objects: Objects) -> list[bytes]:
    """Digests that stay the same from version to version."""
    first, weighted = objects.first * objects.d, objects.weight_runs is not None
    flat = _numbers(objects)
    found, data, width = [], flat.tobytes(), flat.shape[1] * flat.itemsize
    if not len(first) and not weighted and objects.group is None:
        return [blake2b(data[at : at + width], digest_size=_DIGEST).digest() for at in range(0, len(data), width)]
    for i in range(len(objects)):
        digest = blake2b(data[i * width : (i + 1) * width], digest_size=_DIGEST)
        if len(first):
            digest.update(objects.samples[first[i] : first[i + 1]].tobytes())
        if weighted:
            digest.update(objects.weights[objects.first[i] : objects.first[i + 1]].tobytes())
        if objects.group is not None:
            digest.update(objects.group.values[objects.group.codes[i]])
        found.append(digest.digest())
    return found


def _numbers(objects: Objects) -> Floats:
    """What rows hold beside samples and groups."""
    margin = np.empty((len(objects), 0)) if objects.margin is None else objects.margin[:, None]
    return np.hstack([objects.centre, objects.spread, objects.mass[:, None], margin])


@dataclass(frozen=True, slots=True)
class Objects(Batch):
    """Rows of one stream, as flat arrays; ``n`` rows in ``d`` dimensions.

    ``centre`` is the probability-weighted mean; of positions, Earth-centred coordinates and, if known, the altitude.
    ``spread`` holds sigmas or a radius, or the upper triangle of a covariance, as `appulse.model.covariance` says (of
    positions east and north, and one more of the altitude),
    ``covariance`` the upper triangle by rows (n, d (d + 1) / 2; only where samples are held). ``sample_runs`` are the
    samples, if any: ``d`` numbers each, but all of a row's first coordinates come first. ``weight_runs`` are their
    weights, None where each row's samples weigh the same. ``reach`` is the alpha-reach: the radius within which the
    row must be looked for. ``measure`` is the attribute of a delta window; ``number`` a row's place in its window's
    order, and ``frame`` (n, streams) the least numbers that the windows held at its tick, once it has been numbered
    (beside them the newest, where rows may not exist). ``velocity`` (n, d) is in units a second;
    ``degrees`` (n, 2) are longitude and latitude of a position as they were given, where a call asks for them.
    ``change`` says of rows that may be withdrawn what each does, as `appulse.model.changes` has it.
    ``margin`` is what a row adds to epsilon, where rows have one; it is part of their reach.
    """

    form: Form = field(metadata=SHARED)
    time: Ints
    key: Bytes
    mass: Floats
    centre: Floats
    spread: Floats
    reach: Floats
    radius: Floats
    covariance: Floats
    sample_runs: Ragged[Floats] | None = None
    weight_runs: Ragged[Floats] | None = None
    group: Labels | None = None
    differ: Labels | None = None
    measure: Floats | None = None
    number: Ints | None = None
    frame: Ints | None = None
    velocity: Floats | None = None
    degrees: Floats | None = None
    change: Ints | None = None
    margin: Floats | None = None

    @property
    def d(self) -> int:
        return int(self.centre.shape[1])

    @property
    def first(self) -> Ints:
        """Where the samples of each row begin; empty if there are none."""
        return _NO_INTEGERS if self.sample_runs is None else self.sample_runs.offsets

    @property
    def samples(self) -> Floats:
        """All coordinates: those of row i begin at ``d * first[i]``, dimension by dimension."""
        return _NO_FLOATS if self.sample_runs is None else self.sample_runs.values.reshape(-1)

    @property
    def weights(self) -> Floats:
        """The weights of the samples; empty where each row's samples weigh the same."""
        return _NO_FLOATS if self.weight_runs is None else self.weight_runs.values
