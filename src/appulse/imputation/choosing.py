"""Which imputer suits a stream: the one that best fills values taken out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.arguments import Attributes, Count, checked
from appulse.errors import BadArgument
from appulse.imputation.discovery import discovered
from appulse.imputation.imputer import DependencyImputer, Rules
from appulse.imputation.in_time import LastValueImputer, SpeedImputer
from appulse.imputation.interpolation import InterpolationImputer
from appulse.imputation.regression import RegressionImputer
from appulse.imputation.repository import Repository
from appulse.imputation.scores import Score, pooled, scored
from appulse.imputation.simple import MeanImputer, NearestImputer
from appulse.imputation.time_regression import TimeRegressionImputer
from appulse.model.filled import Fill

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.imputation.imputer import Imputer
    from appulse.imputation.repository import Floats, Ints

_LEAST_ROWS = 16
_SAME = 1.02  # scores whose ratio is less tell no difference: that of 64 samples is 1/64 above their distribution's
_ENOUGH = 1000  # values taken out
# Shares of the stream that no period is likely to have.
_SHIFTS = (0.381966, 0.618034, 0.236068, 0.763932)


@checked
class AutoImputer:
    """Chooses an imputer for each stream: values that are there are taken out, and the best at filling them is it.

    ``repository`` is any frame of complete rows, default the stream's own. ``sample`` rows of the stream, one after the
    other, tell; what is taken out is what rows some way off lack, so that gaps are as they come. The score is the
    mean CRPS in deviations (`Score`); of those within 2 % of the best, that with the narrowest fills is taken, for of
    two that foretell a value as well, it tells apart better what is close to it. ``scores`` tells them, by name, after
    a call. Several holes of a row are filled together. ``rules`` are the dependencies to fill by, default those found
    on the repository; they are not checked again. It needs whole frames.
    """

    def __init__(self, repository: Any = None, sample: Count = 20_000, rules: Rules | None = None) -> None:
        given = repository is None or isinstance(repository, Repository)
        self.repository: Repository | None = repository if given else Repository(repository)
        self.sample, self.rules = sample, rules
        self.scores: dict[str, Score] = {}
        self._by_dependencies: dict[tuple[tuple[str, ...], str], DependencyImputer] = {}

    @checked
    def bind(self, attributes: Attributes) -> Fill:
        """Not before an imputer has been chosen."""
        raise BadArgument(
            f"No imputer has been chosen for {', '.join(attributes)}: rows come piece by piece. Choose one on a frame "
            "of typical rows first: see AutoImputer.chosen."
        )

    def chosen(
        self,
        attributes: Sequence[str],
        values: Floats,
        time: Ints,
        group: Ints,
        beside: Mapping[str, tuple[Floats, Ints]] | None = None,
    ) -> Imputer:
        """The imputer for rows (n, d) with their times and partitions, NaN where something is missing.

        ``beside`` are the streams these are joined with, by name, as `TimeRegressionImputer` takes them.
        """
        values, time, group = values[: self.sample], time[: self.sample], group[: self.sample]
        missing = np.isnan(values)
        rounds = _taken_out(missing)
        complete = ~missing.any(axis=1)
        learned = self._known(attributes, values[complete & ~np.any(rounds, axis=(0, 2))])
        candidates = self.candidates(attributes, *learned, beside=beside)
        self.scores = {
            name: pooled([_score(imputer, attributes, values, taken, time, group) for taken in rounds])
            for name, imputer in candidates.items()
        }
        best = self.best()
        return self.candidates(attributes, *self._known(attributes, values[complete]), only=best, beside=beside)[best]

    def best(self) -> str:
        """The name of the one that was chosen last."""
        # A fill that is not finite has no score, and that of a perfect one may be below 0 by rounding.
        scores = {name: max(0.0, min(np.inf, score.crps)) for name, score in self.scores.items()}
        close = [name for name, score in scores.items() if score <= _SAME * min(scores.values())]
        return min(close, key=lambda name: self.scores[name].spread)

    def candidates(
        self,
        attributes: Sequence[str],
        repository: Repository | None,
        own: Repository | None = None,
        only: str | None = None,
        beside: Mapping[str, tuple[Floats, Ints]] | None = None,
    ) -> Mapping[str, Imputer]:
        """The imputers to choose from, over a repository if there is one, the stream's own rows, and other streams."""
        found: dict[str, Any] = {
            "last value": LastValueImputer,
            "neighbours in time": SpeedImputer,
            "interpolation": InterpolationImputer,
            "regression in time": TimeRegressionImputer,
        }
        for name, other in (beside or {}).items():
            found[f"regression in time, beside {name}"] = lambda other=other: TimeRegressionImputer(beside=other)
        if own is not None:
            found["regression on own rows"] = lambda: RegressionImputer(own)
        if repository is not None:
            known = repository
            found |= {
                "regression": lambda: RegressionImputer(known),
                "nearest": lambda: NearestImputer(known),
                "mean": lambda: MeanImputer(known),
            }
            if len(attributes) > 1:
                found["dependencies"] = lambda: self._dependencies(known, attributes)
        return {name: make() for name, make in found.items() if only in (None, name)}

    def _known(self, attributes: Sequence[str], rows: Floats) -> tuple[Repository | None, Repository | None]:
        """What to learn from: the repository, and complete rows of the stream itself, which may be all there is."""
        few = len(rows) < _LEAST_ROWS
        own = None if few else Repository(pa.table(dict(zip(attributes, rows.T, strict=True))))
        return (own, None) if self.repository is None else (self.repository, own)

    def _dependencies(self, repository: Repository, attributes: Sequence[str]) -> DependencyImputer:
        """By rules found on a repository, which were checked in that; once, as it takes longer than to fill."""
        key = tuple(attributes), repository.version
        if key not in self._by_dependencies:
            rules = self.rules
            if rules is None:
                rules = [one.rule for one in discovered(repository, attributes)]
            self._by_dependencies[key] = DependencyImputer(repository, rules, joint=True, verified=())
        return self._by_dependencies[key]


def _score(
    imputer: Imputer, attributes: Sequence[str], values: Floats, taken: NDArray[np.bool_], time: Ints, group: Ints
) -> Score:
    masked = np.where(taken, np.nan, values)
    kept = ~np.isnan(masked).all(axis=1)
    return scored(imputer, attributes, values[kept], masked[kept], time[kept], group[kept])


def _taken_out(missing: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Values to take out, in rounds till there are enough: what rows some way off lack, or else a tenth of the rows.

    Each round is of one half of the rows, the other is left to learn from.
    """
    n, d = missing.shape
    rounds: list[NDArray[np.bool_]] = []
    for i, shift in enumerate(_SHIFTS):
        if sum(int(taken.sum()) for taken in rounds) >= _ENOUGH:
            break
        half = (np.arange(n) * 2 // n % 2 == i % 2)[:, None]
        taken = np.roll(missing, int(shift * n), axis=0) & ~missing & half
        if not taken.any():
            rows = np.arange(0, n, 10)
            taken[rows, np.random.default_rng(int(shift * 100)).integers(0, d, len(rows))] = True
            taken &= ~missing
        rounds.append(taken & ~(taken | missing).all(axis=1, keepdims=True))
    return rounds
