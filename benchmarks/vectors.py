"""Vectors of 768 numbers that point the same way: ours, a blocked product of all pairs, and faiss. One thread each.

Part of `benchmarks.association`, which has the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from benchmarks.aside import aside
from benchmarks.harness import least, say

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["cosine"]

_N, _D = 10_000, 768
_BLOCKS = 512, 2048


def vectors(chance: np.random.Generator, axes: int | None) -> NDArray[np.float32]:
    """Directions, all over the sphere or near a few axes of their own as those of a language model are."""
    if axes is None:
        rows = chance.normal(size=(2 * _N, _D))
    else:
        rows = chance.normal(size=(2 * _N, axes)) @ chance.normal(size=(axes, _D)) / np.sqrt(axes)
        rows += chance.normal(0.0, 0.1, rows.shape)
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1)[:, None]).astype(np.float32)
    return unit


def stream(rows: NDArray[np.float32]) -> ap.Stream:
    """Vectors of one time, known by their place."""
    lists = pa.FixedSizeListArray.from_arrays(rows.ravel(), _D)
    frame = pa.table({"k": np.arange(_N), "t": np.zeros(_N), "v": lists})
    return ap.Stream(frame, key="k", time="t", value=ap.Exact("v"))


def by_blocks(left: NDArray[np.float32], right: NDArray[np.float32], least_product: float) -> NDArray[np.int64]:
    """The pairs with at least that product, by matrix products of all."""
    found = []
    for i in range(0, len(left), _BLOCKS[0]):
        for j in range(0, len(right), _BLOCKS[1]):
            rows, columns = np.nonzero(left[i : i + _BLOCKS[0]] @ right[j : j + _BLOCKS[1]].T >= least_product)
            found.append((rows + i) * len(right) + columns + j)
    return np.sort(np.concatenate(found))


def cosine(folder: Path) -> dict[str, float | None]:
    """Where no bound leaves any pair out, and where the first few axes do."""
    figures: dict[str, float | None] = {}
    for name, axes, epsilon in (("cosine_vs_blas", None, 0.87), ("cosine_vs_blas_near", 40, 0.3)):
        rows = vectors(np.random.default_rng(0), axes)
        left, right = rows[:_N], rows[_N:]
        both = [stream(some) for some in (left, right)]

        def ours(both: Any = both, epsilon: float = epsilon) -> pa.Table:
            return ap.similarity_join(*both, epsilon=epsilon, probability=1.0, window=1, metric="cosine")

        def theirs(left: Any = left, right: Any = right, epsilon: float = epsilon) -> NDArray[np.int64]:
            return by_blocks(left, right, 1.0 - epsilon)

        took, blas = least(ours, theirs)
        pairs = ours()
        mine = np.sort(pairs["left_key"].to_numpy() * _N + pairs["right_key"].to_numpy())
        _check(mine, theirs(), left, right, 1.0 - epsilon)
        say(f"{name}: {len(pairs):,} pairs, ours {took:.2f} s, all products {blas:.2f} s")
        figures[name] = took / blas
        if axes is None:
            np.save(folder / "left.npy", left)
            np.save(folder / "right.npy", right)
            other = aside("faiss_range", folder / "left.npy", folder / "right.npy", 1.0 - epsilon)
            if other is not None and abs(other["pairs"] - len(pairs)) > len(pairs) * 1e-3:
                raise RuntimeError(f"faiss finds {other['pairs']} pairs, and not {len(pairs)}")
            figures["faiss_flat"] = None if other is None else other["seconds"] / took
    return figures


def _check(
    mine: NDArray[np.int64], theirs: NDArray[np.int64], left: NDArray[Any], right: NDArray[Any], least_product: float
) -> None:
    """Raise unless the pairs are the same, but for those at the rim, which float32 cannot tell."""
    differing = np.setxor1d(mine, theirs)
    i, j = differing // _N, differing % _N
    product = np.einsum("ij,ij->i", left[i].astype(float), right[j].astype(float))
    if (np.abs(product - least_product) > 1e-6).any():
        raise RuntimeError("all products have other pairs")
