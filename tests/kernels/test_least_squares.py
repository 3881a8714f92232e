"""Kernels that fill from rows of a repository, against NumPy and SciPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from appulse.imputation.repository import units
from appulse.kernels.least_squares import Scale, around, fitted, in_units, weights
from appulse.kernels.similar_rows import nearest_in_unit

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints


def every_third(samples: Floats) -> Floats:
    """The middle of every three of (n, 3 * k, attributes) samples, in order of the first attribute."""
    if samples.shape[1] % 3:
        return samples
    order = np.argsort(samples[:, :, 0], axis=1, kind="stable")[:, 1::3]
    return np.take_along_axis(samples, order[:, :, None], axis=1)


def test_every_third_sample_is_the_middle_of_three() -> None:
    samples = np.array([[[5.0, 1.0], [3.0, 2.0], [4.0, 3.0], [0.0, 4.0], [2.0, 5.0], [1.0, 6.0]]])
    assert every_third(samples).tolist() == [[[1.0, 6.0], [4.0, 3.0]]]
    assert every_third(samples[:, :4]).tolist() == samples[:, :4].tolist()


def filled_slowly(rows: Floats, asked: Floats, seen: Ints, holes: Ints, near: Ints, scale: Scale) -> Floats:
    """Least squares and errors by NumPy: an attribute that never varies is its middle."""
    unit = np.where(np.isinf(scale.deviation), 1.0, scale.deviation)
    flat = np.isinf(scale.deviation)

    def off(some: Floats, columns: Ints) -> Floats:
        found = np.where(flat, 0.0, some - scale.centre) / unit
        return np.asarray(found[:, columns])

    given_rows, wanted = np.column_stack([off(rows, seen), np.ones(len(rows))]), off(rows, holes)
    weights = np.linalg.lstsq(given_rows, wanted, rcond=None)[0]
    errors = wanted - given_rows @ weights
    predicted = np.column_stack([off(asked, seen), np.ones(len(asked))]) @ weights
    samples = predicted[:, None] + every_third(errors[near])
    return np.asarray(scale.centre[holes] + samples * np.where(flat, 0.0, unit)[holes])


@given(st.integers(0, 1000), st.integers(3, 80), st.integers(0, 3), st.integers(1, 2), st.integers(1, 60))
def test_rows_are_filled_as_by_numpy(seed: int, n: int, s: int, m: int, k: int) -> None:
    chance = np.random.default_rng(seed)
    rows, asked = chance.normal(3.0, 2.0, (n, s + m)), chance.normal(3.0, 2.0, (4, s + m))
    rows[:, chance.random(s + m) < 0.2] = 7.0
    seen, holes, scale = np.arange(s), s + np.arange(m), Scale(*units(rows))
    learned = fitted(rows, seen, holes, scale)
    near = chance.integers(0, n, (4, k))
    found = around(asked, seen, holes, *learned, near, scale)
    np.testing.assert_allclose(found, filled_slowly(rows, asked, seen, holes, near, scale), rtol=1e-7, atol=1e-7)


@given(st.integers(0, 1000), st.integers(1, 200), st.integers(1, 3), st.integers(1, 60))
def test_the_nearest_rows_and_their_shares_are_those_of_a_tree(seed: int, n: int, p: int, k: int) -> None:
    chance = np.random.default_rng(seed)
    rows, most = chance.normal(size=(n, p)), min(k, n)
    asked = np.vstack([rows[:1], chance.normal(size=(2, p))])
    deviation = np.where(np.arange(p) == 2, np.inf, chance.random(p) + 0.1)
    columns = np.arange(p)
    known, own = in_units(rows, columns, deviation), in_units(asked, columns, deviation)
    near = nearest_in_unit(known, own, most)
    shares = weights(known, own, near)
    distance, place = cKDTree(rows / deviation).query(asked / deviation, k=np.arange(1, most + 1))
    for i in range(3):
        same = distance[i] == 0.0
        weight = same if same.any() else 1.0 / distance[i]
        expected = dict(zip(place[i].tolist(), (weight / weight.sum()).tolist(), strict=True))
        found = dict(zip(near[i].tolist(), shares[i].tolist(), strict=True))
        assert found.keys() == expected.keys()
        np.testing.assert_allclose([found[j] for j in expected], list(expected.values()), rtol=1e-9)


def test_units_are_cut_off_where_squares_would_overflow() -> None:
    rows = np.array([[1e300, -1e300, 5.0]])
    found = in_units(rows, np.array([0, 1, 2]), np.array([1.0, 1.0, np.inf]))
    assert found.tolist() == [[1e150], [-1e150], [0.0]]
