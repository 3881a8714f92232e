"""Which heads a reading asks: all of them, or those that were of use before (relevance feedback)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from appulse.errors import BadArgument

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

STEP, LEAST, START = 0.25, 0.05, 0.5


class Policy(Protocol):
    """Chooses heads, and may learn from what came of it."""

    notes: bool  # whether the sink tells the first head what became of a probe

    def choose(self, head: Ints, bins: Ints) -> Flags:
        """Which heads each reading is sent to, shape (readings, heads); its own column means nothing."""
        ...

    def learn(self, head: int, bin_: int, probed: Ints, weight: Floats) -> None:
        """A note of the sink: the share of the answer's elements that each of these heads has a part in."""
        ...


class Everyone:
    """All heads: loses nothing."""

    notes = False

    def __init__(self, heads: int) -> None:
        self._heads = heads

    def choose(self, head: Ints, bins: Ints) -> Flags:  # noqa: ARG002
        """All."""
        return np.ones((len(head), self._heads), bool)

    def learn(self, head: int, bin_: int, probed: Ints, weight: Floats) -> None:
        """Nothing to learn."""


class Feedback:
    """A relevance feedback matrix a head: hash buckets x heads (Ali et al., Definitions 2 and 3, Fig. 6).

    ``rule="printed"``: head i is asked with probability R_i / sum of R, and R_i becomes R_i - mean(w) + w_i. The
    probabilities add up to 1 over all heads, so a probe asks one head in the mean, and nothing bounds R.

    ``rule="corrected"``: each is asked with probability R_i by itself, and R_i + step (w_i - mean(w)) is held between
    ``least``, which keeps exploring, and 1. With a ``budget`` it is min(1, budget R_i / sum of R). Either way w_i is
    the share of the answer's elements that head i has a part in: of one reading, all or none.
    """

    notes = True

    def __init__(
        self,
        heads: int,
        seed: int,
        rule: str = "corrected",
        buckets: int = 64,
        step: float = STEP,
        least: float = LEAST,
        budget: float | None = None,
    ) -> None:
        if rule not in {"corrected", "printed"}:
            raise BadArgument(f"rule={rule!r} is not known. Give 'corrected' or 'printed'.")
        self._random = np.random.default_rng([seed, 0xFEED])
        self._printed, self._step, self._least, self._budget = rule == "printed", step, least, budget
        self.relevance: Floats = np.full((heads, buckets, heads), START)

    def probability(self, head: Ints, bins: Ints) -> Floats:
        """With what probability each head is asked, shape (readings, heads)."""
        relevance: Floats = self.relevance[head, bins % self.relevance.shape[1]]
        total = relevance.sum(axis=1, keepdims=True) - relevance[np.arange(len(head)), head][:, None]
        if self._printed:
            share: Floats = np.divide(relevance, total, out=np.zeros_like(relevance), where=total > 0)
            return np.asarray(np.clip(share, 0.0, 1.0), np.float64)
        if self._budget is not None:
            return np.asarray(np.minimum(1.0, self._budget * relevance / np.maximum(total, self._least)), np.float64)
        return relevance

    def choose(self, head: Ints, bins: Ints) -> Flags:
        """Each head by a draw of its own."""
        probability = self.probability(head, bins)
        return np.asarray(self._random.random(probability.shape) < probability, bool)

    def learn(self, head: int, bin_: int, probed: Ints, weight: Floats) -> None:
        """Raise the relevance of heads that were of more use than the mean, lower that of the others."""
        if len(probed) == 0:
            return
        row = self.relevance[head, bin_ % self.relevance.shape[1]]
        gain = weight - weight.mean()
        if self._printed:
            row[probed] += gain
        else:
            row[probed] = np.clip(row[probed] + self._step * gain, self._least, 1.0)
