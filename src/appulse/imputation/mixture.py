"""Several imputers at once: each fills a row, and what they say counts by their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.model.filled import OBSERVED, Filled
from appulse.model.meaning import real

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.imputation.imputer import Imputer
    from appulse.imputation.repository import Floats, Ints
    from appulse.model.filled import Fill
    from appulse.model.meaning import Meaning

_EXPONENT = 4.0  # of how much better a score is: one that is a fifth worse counts for a half
_FAR = 1.5  # times the best score: imputers with a greater one have no part
_MOST = 4  # imputers: each takes its time, and its samples


def weights_of(scores: Mapping[str, float]) -> dict[str, float]:
    """How much each of several imputers counts, by its score (the less, the better), the heaviest first."""
    best = min(scores.values())
    if not np.isfinite(best):
        return {min(scores, key=lambda name: scores[name]): 1.0}
    near = sorted((name for name in scores if scores[name] <= _FAR * best), key=lambda name: scores[name])[:_MOST]
    share = {name: 1.0 if scores[name] == best else (best / scores[name]) ** _EXPONENT for name in near}
    total = sum(share.values())
    return {name: of / total for name, of in share.items()}


@dataclass(frozen=True)
class Mixture:
    """Imputers by name, and their weights, which sum to 1."""

    parts: Mapping[str, Imputer]
    weights: Mapping[str, float]

    def bind(self, attributes: Sequence[str]) -> MixedFill:
        """What fills rows with these attributes."""
        return MixedFill({name: imputer.bind(attributes) for name, imputer in self.parts.items()}, self.weights)


class MixedFill:
    """A linear opinion pool: the samples of several fills together, those of each with its weight.

    A fill that knows nothing of some hole of a row has no part in that row, unless none knows more.
    """

    def __init__(self, fills: Mapping[str, Fill], weights: Mapping[str, float]) -> None:
        self.fills = tuple(fills.values())
        self.weights = tuple(weights[name] for name in fills)
        self._description = " + ".join(f"{weights[name]:.2f} {name}" for name in fills)

    @property
    def in_order(self) -> bool:
        """Whether any part is filled by the rows around."""
        return any(fill.in_order for fill in self.fills)

    def meaning(self) -> Meaning:
        """See `appulse.model.filled.Fill`."""
        parts = [[real(weight), fill.meaning()] for fill, weight in zip(self.fills, self.weights, strict=True)]
        return {"kind": "Mixture", "parts": parts}

    def describe(self, way: int) -> str:  # noqa: ARG002 - there is one way
        return self._description

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        """See `appulse.model.filled.Fill`."""
        return self._mixed([fill.fill(values, time, group) for fill in self.fills])

    def _mixed(self, parts: Sequence[Filled]) -> Filled:
        n = len(parts[0].way)
        owners = [np.repeat(np.arange(n), np.diff(part.first)) for part in parts]
        share = np.stack([self._able(*own) for own in zip(parts, owners, strict=True)], axis=1)
        share[~share.any(axis=1), 0] = True
        # A row without holes is what it is, once.
        share[(parts[0].way == OBSERVED).all(axis=1)] = np.arange(len(parts)) == 0
        weight = share * np.array(self.weights)
        weight /= weight.sum(axis=1, keepdims=True)
        kept = [share[owner, i] for i, owner in enumerate(owners)]
        owner = np.concatenate([of[own] for of, own in zip(owners, kept, strict=True)])
        rows = np.concatenate([part.rows[own] for part, own in zip(parts, kept, strict=True)])
        apart = enumerate(zip(parts, owners, kept, strict=True))
        shares = [part.weights[own] * weight[of[own], i] for i, (part, of, own) in apart]
        order = np.argsort(owner, kind="stable")
        first = np.append(0, np.cumsum(np.bincount(owner, minlength=n)))
        way = np.where(parts[0].way == OBSERVED, OBSERVED, 0)
        return Filled(first, np.ascontiguousarray(rows[order]), np.concatenate(shares)[order], way)

    @staticmethod
    def _able(part: Filled, owner: Ints) -> NDArray[np.bool_]:
        able = np.ones(len(part.way), np.bool_)
        able[owner[~np.isfinite(part.rows).all(axis=1)]] = False
        return able
