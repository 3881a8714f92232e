"""Which imputers suit a stream: those that best fill values taken out of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.arguments import Attributes, Count, checked
from appulse.errors import BadArgument
from appulse.imputation.discovery import discovered
from appulse.imputation.empty_rows import OrEmpty
from appulse.imputation.imputer import DependencyImputer, Rules
from appulse.imputation.in_time import LastValueImputer, SpeedImputer
from appulse.imputation.interpolation import InterpolationImputer
from appulse.imputation.logs import InLogs, Logs
from appulse.imputation.marginal import OrMarginal
from appulse.imputation.mixture import Mixture, stacked
from appulse.imputation.regression import RegressionImputer
from appulse.imputation.repository import Repository
from appulse.imputation.scores import Judged, Score, judged, own_units, pooled
from appulse.imputation.simple import MeanImputer, NearestImputer
from appulse.imputation.spatial import SpatialImputer
from appulse.imputation.time_regression import TimeRegressionImputer
from appulse.model.filled import Fill
from appulse.model.workers import Workers, cores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from appulse.imputation.imputer import Imputer
    from appulse.kernels.arrays import Flags, Floats, Ints

    Others = Mapping[str, tuple[Floats, Ints]]

_LEAST_ROWS = 16
# Times the best score after so many rounds: further ones are not going to make up for that.
_HOPELESS = (np.inf, 2.5, 2.0, 1.7)
_SPARSE, _MANY = 0.15, 128  # share of values missing and runs of them: with fewer and more two rounds are enough
_PLENTY = 512  # runs of which a half says as much
# Samples of regressions, and of those in time: of three times as many similar rows. Of more, errors where little varies
# would be taken from where much does, and just there joins find their pairs.
_ERRORS = (24, 12)
# What fills where nothing can be judged: the first of those that can be tried.
_UNJUDGED = ("interpolation", "mean", "regression on own rows", "regression")
# Shares of the stream that no period is likely to have.
_SHIFTS = (0.381966, 0.618034, 0.236068, 0.763932)


@checked
class AutoImputer:
    """Chooses imputers for each stream: masks known values, and mixes the imputers that fill these best.

    Arguments:
    * ``repository``: any frame of complete rows. None: the stream's own rows, complete or not.
    * ``sample``: how many consecutive rows of the stream are tested.
    * ``rules``: the dependencies to fill by, a list of `DifferentialDependency`; they are not checked again. None:
      those found on the repository.
    * ``locations``: those of `SpatialImputer`, which is tried where they are given.
    * ``threads``: how many cores try imputers, each one of them; default: all. The choice is the same for any number.

    Masked is what rows some way off lack, so that gaps are as they occur, and what streams beside it lack at that time,
    so that these help no more than in real gaps. Each round learns anew from what is left: an imputer learns from the
    rows that have what it needs, and copies of masked rows are left out of the repository. Where that holds at least
    half of the stream's complete rows, copies of rows with holes are left out for good. The score is the mean CRPS in
    deviations (`Score`); an imputer that is far behind is not tried further, and rules are not searched for unless the
    nearest rows fill best, in two rounds where there are more.

    At most four, of those with scores within 1.5 times the best one, fill each hole together: samples of all, each with
    its weight. The weights are those by which their mixture has the least CRPS on the masked values: it counts how good
    each of them is, and how far they differ. Several holes of a row are filled together. Where
    many values of an attribute are small and few are large (skewness above 1), regressions and lines are of logarithms:
    errors are larger where values are. Attributes that are never there are filled with values of the repository, or of
    the stream's other partitions; without any they make rejects.

    Rows that lack everything (``impute(..., empty_rows=True)``) have imputers of their own. They are judged by whole
    rows masked, in the pattern in which such rows occur in each partition. ``empty_scores`` and ``empty_weights`` are
    theirs; where no other row has a hole, ``scores`` and ``weights`` are, too.

    Where no value can be masked, as in a stream of one known value, nothing is judged: ``scores`` is empty. Holes are
    then filled by interpolation, or with the repository's mean where rows are filled one by one.

    The object is the ``imputer`` of `impute` and of joins, as ``"auto"`` is; it needs whole frames. ``scores`` and
    ``weights`` are by name after a call, ``dropped`` has the imputers that could not be tried, and why; `explain` has
    all of it.

    Raises `BadArgument` for a wrong argument or an unfit repository, and in a call where no imputer can be tried or
    rows come piece by piece.

    >>> xs = [float(i) for i in range(60)]
    >>> rows = pa.table({"id": range(60), "t": range(60), "x": xs, "y": [2 * x for x in xs[:-1]] + [None]})
    >>> imputer = ap.AutoImputer()
    >>> filled = ap.impute(ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y")), imputer).frame
    >>> filled.num_rows, len(imputer.scores) > 1
    (60, True)
    """

    def __init__(
        self,
        repository: Any = None,
        sample: Count = 20_000,
        rules: Rules | None = None,
        locations: Any = None,
        threads: Count | None = None,
    ) -> None:
        given = repository is None or isinstance(repository, Repository)
        self.repository: Repository | None = repository if given else Repository(repository)
        self.sample, self.rules, self.threads = sample, rules, threads
        self.spatial = None if locations is None else SpatialImputer(locations)
        self.scores: dict[str, Score] = {}
        self.weights: dict[str, float] = {}
        self.empty_scores: dict[str, Score] = {}
        self.empty_weights: dict[str, float] = {}
        self.dropped: dict[str, str] = {}
        self.copies, self.own_copies = 0, 0
        self._rules: dict[tuple[tuple[str, ...], str], Rules] = {}

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
        beside: Others | None = None,
        *,
        whole: bool = True,
        empty_rows: bool = False,
    ) -> Imputer:
        """The imputer for rows (n, d) with their times and partitions, NaN where something is missing.

        ``beside`` are the streams these are joined with, by name, as `TimeRegressionImputer` takes them. Without
        ``whole`` rows are going to be filled one by one, and imputers that look at others are not tried. With
        ``empty_rows`` rows that lack everything are filled, too.
        """
        self.empty_scores, self.empty_weights = {}, {}
        rows = ~np.isnan(values).all(axis=1)
        # Rows that come one by one may be of kinds that these are not.
        if not empty_rows or (whole and rows.all()):
            return self._chosen(attributes, values, time, group, beside, whole=whole)
        of_empty = self._chosen(attributes, values, time, group, beside, whole=whole, empty=True)
        self.empty_scores, self.empty_weights = self.scores, self.weights
        if whole and not np.isnan(values[rows]).any():
            return of_empty
        dropped, report = self.dropped, self.report()
        partly = self._chosen(attributes, values[rows], time[rows], group[rows], beside, whole=whole)
        report = f"{self.report()}; of rows that lack everything: {report}"
        self.dropped |= {f"{name}, of empty rows": reason for name, reason in dropped.items()}
        return OrEmpty(partly, of_empty, report)

    def _chosen(
        self,
        attributes: Sequence[str],
        values: Floats,
        time: Ints,
        group: Ints,
        beside: Others | None,
        *,
        whole: bool,
        empty: bool = False,
    ) -> Imputer:
        """As `chosen`, for rows that lack something, or else for those that lack everything."""
        repository = self._without_copies(attributes, values)
        values, time, group = values[: self.sample], time[: self.sample], group[: self.sample]
        missing = np.isnan(values)
        self.scores, self.dropped, self.copies = {}, {}, 0
        said: dict[str, dict[int, Judged]] = {}
        threads = self.threads or cores()
        rounds = _rows_taken_out(missing, time, group) if empty else _taken_out(missing)
        for number, (hopeless, (taken, shift)) in enumerate(zip(_HOPELESS, rounds, strict=False)):
            masked = np.where(taken, np.nan, values)
            rows = np.asarray(taken.any(axis=1))
            around = {name: _lacking_too(*other, time, rows, shift) for name, other in (beside or {}).items()}
            known = self._known(attributes, repository, masked, values[rows])
            kept = empty | ~np.isnan(masked).all(axis=1)
            asked = values[kept], masked[kept], time[kept], group[kept]
            unit = own_units(asked[0])
            found = {name: _score(of) for name, of in said.items()}
            best = min((score.crps for score in found.values()), default=np.inf)
            makers = self.candidates(attributes, *known[:2], around, whole=whole)
            makers = {n: m for n, m in makers.items() if n not in found or found[n].crps <= hopeless * max(best, 0.0)}
            rules = makers.pop("dependencies", None)

            tried = partial(_tried, (attributes, *asked, unit), known[2], empty_rows=empty)
            tries = Workers(threads).map(tried, list(makers.values()))
            self._note(dict(zip(makers, tries, strict=True)), said, number)
            if rules is None or (number == 0 and len(rounds) > 2 and self.rules is None):
                continue  # one round of several may be by chance, and to find rules takes longer than all else
            if self._may_pay(said):
                self._note({"dependencies": tried(rules)}, said, number)
            else:
                self.dropped.setdefault(
                    "dependencies", "the nearest rows fill worse, and rules find much the same ones"
                )
        self.scores = {name: _score(of) for name, of in said.items() if name not in self.dropped}
        if not self.scores:
            reasons = " ".join(f"{name}: {reason}." for name, reason in self.dropped.items())
            raise BadArgument(f"imputer='auto' found nothing that fills {', '.join(attributes)}. {reasons}")
        if any(score.holes for score in self.scores.values()):
            self.weights = stacked({name: said[name] for name in self.scores})
        else:
            self.weights = {next((name for name in _UNJUDGED if name in self.scores), next(iter(self.scores))): 1.0}
            self.scores = {}
        known = self._known(attributes, repository, values, values[:0])
        makers = self.candidates(attributes, *known[:2], beside, whole=whole, threads=threads)
        parts = {name: makers[name]() for name in self.weights}
        chosen: Imputer = (
            parts[self.best()] if len(parts) == 1 else Mixture(parts, self.weights, threads if whole else 1)
        )
        return OrMarginal(chosen, known[2], self.report())

    def best(self) -> str:
        """The name of the one with the greatest weight among those chosen last."""
        return max(self.weights, key=lambda name: self.weights[name])

    def report(self) -> str:
        """Which ones were chosen last, the scores of all, and which could not be tried."""
        order = sorted(self.scores, key=lambda name: self.scores[name].crps)
        chosen = " + ".join(f"{weight:.2f} {name}" for name, weight in self.weights.items())
        found = ", ".join(f"{n} {self.scores[n].crps:.3f}" for n in order)
        parts = [f"{chosen}, by CRPS in deviations: {found}" if found else f"{chosen}: no value could be masked"]
        parts += [f"{name} was not tried: {reason}" for name, reason in self.dropped.items()]
        if self.own_copies:
            left = f"{self.own_copies:,} copies of rows with holes were left out"
            parts.append(f"the repository holds the stream's own rows: {left}")
        if self.copies:
            parts.append(f"{self.copies:,} rows of the repository are the stream's own and were left out of the scores")
        return "; ".join(parts)

    def candidates(
        self,
        attributes: Sequence[str],
        repository: Repository | None,
        own: Repository | None = None,
        beside: Others | None = None,
        *,
        whole: bool = True,
        threads: int = 1,
    ) -> dict[str, Callable[[], Imputer]]:
        """What makes the imputers to choose from: over a repository, the stream's own rows, and other streams."""
        found: dict[str, Callable[[], Imputer]] = {}
        typical = own if repository is None else repository
        logs = None if typical is None else Logs.of(typical.matrix(attributes).T)
        if whole:
            found |= {
                "last value": LastValueImputer,
                "neighbours in time": SpeedImputer,
                "interpolation": _made(logs, InterpolationImputer, joint=True),
                "regression in time": _made(logs, TimeRegressionImputer, _ERRORS[1], threads=threads),
            }
            for name, (rows, time) in (beside or {}).items():
                of_other = Logs.of(rows) if logs is not None else None
                other = rows if of_other is None else of_other.taken(rows), time
                by = f"regression in time, beside {name}"
                found[by] = _made(logs, TimeRegressionImputer, _ERRORS[1], beside=other, threads=threads)
            if self.spatial is not None:
                spatial = self.spatial
                found["inverse distance"] = _made(logs, lambda: spatial)
        if own is not None:
            in_logs = own if logs is None else logs.repository(own, attributes)
            found["regression on own rows"] = _made(logs, RegressionImputer, in_logs, _ERRORS[0])
        if repository is not None:
            known = repository
            in_logs = known if logs is None else logs.repository(known, attributes)
            found |= {
                "regression": _made(logs, RegressionImputer, in_logs, _ERRORS[0]),
                "nearest": lambda: NearestImputer(known),
                "mean": lambda: MeanImputer(known),
            }
            if len(attributes) > 1:
                found["dependencies"] = lambda: self._dependencies(known, attributes)
        return found

    def _note(self, tries: Mapping[str, Judged | BadArgument], said: dict[str, dict[int, Judged]], number: int) -> None:
        """Add what imputers say in a round to what they said before, or why they cannot be tried."""
        for name, one in tries.items():
            if isinstance(one, BadArgument):
                self.dropped[name] = str(one)
            else:
                said.setdefault(name, {})[number] = one

    def _may_pay(self, said: Mapping[str, Mapping[int, Judged]]) -> bool:
        """Whether rules may be worth their search: where the nearest rows, which cost little, have done best so far."""
        if self.rules is not None or "dependencies" in said or "nearest" not in said:
            return True
        if "nearest" in self.dropped:
            return False
        nearest = _score(said["nearest"]).crps
        return all(nearest <= _score(of).crps for name, of in said.items() if name not in self.dropped)

    def _known(
        self, attributes: Sequence[str], repository: Repository | None, masked: Floats, taken: Floats
    ) -> tuple[Repository | None, Repository | None, Repository]:
        """What to learn from: the repository, or else the stream's own rows; these beside it; and one for marginals.

        Of the repository copies of the rows ``taken`` are left out.
        """
        own = Repository.with_holes(dict(zip(attributes, masked.T, strict=True)))
        enough = (~np.isnan(masked)).sum() >= _LEAST_ROWS * masked.shape[1]
        if self.repository is None or repository is None:
            return (own if enough else None), None, own
        copies = _copies(repository.matrix(attributes).T, taken)
        self.copies = max(self.copies, len(copies))
        known = repository.without(copies) if len(copies) else repository
        return (known if len(known) else None), (own if enough else None), self.repository

    def _without_copies(self, attributes: Sequence[str], values: Floats) -> Repository | None:
        """The repository without rows with holes, if it holds the stream's own: it may hold what these really are.

        That is so where at least half of the complete rows are in it, each as often as in the stream. A table that
        values are looked up in has each row once.
        """
        self.own_copies = 0
        there = ~np.isnan(values)
        complete = values[there.all(axis=1)]
        if self.repository is None or len(complete) < _LEAST_ROWS:
            return self.repository
        known = self.repository.matrix(attributes).T
        if 2 * len(_copies(known, complete)) < len(complete):
            return self.repository
        copies = _copies(known, values[there.any(axis=1) & ~there.all(axis=1)])
        self.own_copies = len(copies)
        return self.repository.without(copies) if len(copies) else self.repository

    def _dependencies(self, repository: Repository, attributes: Sequence[str]) -> DependencyImputer:
        """By rules found on complete rows, once: that takes longer than to fill, and they were checked in that."""
        complete = repository.complete()
        if complete is None or len(complete) < _LEAST_ROWS:
            raise BadArgument(f"{0 if complete is None else len(complete)} complete rows, and it needs {_LEAST_ROWS}")
        key = tuple(attributes), "" if self.repository is None else self.repository.version
        rules = self.rules if self.rules is not None else self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = [one.rule for one in discovered(complete, attributes)]
        return DependencyImputer(complete, rules, joint=True, verified=())


def _tried(
    asked: tuple[Sequence[str], Floats, Floats, Ints, Ints, Floats],
    marginal: Repository,
    make: Callable[[], Imputer],
    *,
    empty_rows: bool,
) -> Judged | BadArgument:
    """What an imputer says of the values masked, or why it cannot be tried."""
    try:
        return judged(OrMarginal(make(), marginal), *asked, empty_rows=empty_rows)
    except BadArgument as reason:
        return reason


def _score(rounds: Mapping[int, Judged]) -> Score:
    return pooled([one.score for one in rounds.values()])


def _made(logs: Logs | None, make: Callable[..., Imputer], *args: Any, **named: Any) -> Callable[[], Imputer]:
    """What makes an imputer, of logarithms where there are ``logs``."""

    def made() -> Imputer:
        found = make(*args, **named)
        return found if logs is None else InLogs(found, logs)

    return made


def _copies(rows: Floats, taken: Floats) -> Ints:
    """Places of rows that are the same as some ``taken`` in all that these have: one for each of them at most."""
    found = []
    there = ~np.isnan(taken)
    for pattern in np.unique(there, axis=0) if len(taken) else []:
        own = taken[(there == pattern).all(axis=1)][:, pattern]
        both = np.unique(np.concatenate([rows[:, pattern], own]), axis=0, return_inverse=True)[1].reshape(-1)
        known, asked = both[: len(rows)], both[len(rows) :]
        order = np.argsort(known, kind="stable")
        rank = np.arange(len(known)) - np.searchsorted(known[order], known[order])
        found.append(order[rank < np.bincount(asked, minlength=both.max() + 1)[known[order]]])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _lacking_too(values: Floats, at: Ints, time: Ints, rows: Flags, shift: int) -> tuple[Floats, Ints]:
    """Another stream beside, without what it lacks where those rows come from of which some value was taken out.

    Streams often lack the same at the same time. Where one is filled it must not look at more than it is going to have.
    """
    if len(values) == 0 or not rows.any():
        return values, at
    order, own = np.argsort(at, kind="stable"), np.argsort(time, kind="stable")
    here = np.minimum(np.searchsorted(time[own], at), len(time) - 1)
    there = order[np.minimum(np.searchsorted(at[order], time[own][(here - shift) % len(time)]), len(at) - 1)]
    return np.where(rows[own][here][:, None] & np.isnan(values[there]), np.nan, values), at


def _rows_taken_out(missing: Flags, time: Ints, group: Ints) -> list[tuple[Flags, int]]:
    """As `_taken_out`, whole rows, where rows of the partitions some way off are empty.

    Rounds that would leave nothing of an attribute are left out.
    """
    order = np.lexsort((np.arange(len(time)), time, group))
    rounds = []
    empty = np.asarray(missing[order].all(axis=1, keepdims=True))
    for rows, shift in _taken_out(empty, whole=True):
        taken = np.zeros_like(missing)
        taken[order] = rows
        taken &= ~missing
        if ((~missing & ~taken).any(axis=0) == (~missing).any(axis=0)).all():
            rounds.append((taken, shift))
    return rounds or [(np.zeros_like(missing), 0)]


def _taken_out(missing: Flags, *, whole: bool = False) -> list[tuple[Flags, int]]:
    """Values to take out, in rounds: what rows some way off lack, or else a tenth of the rows; and how many off.

    Each round takes every so many of these runs, so that what is left has not many more holes than there are. No row
    loses its last value, unless with ``whole``.
    """
    n, d = missing.shape
    rounds: list[tuple[Flags, int]] = []
    runs = int((missing[1:] > missing[:-1]).sum())
    shifts = _SHIFTS if missing.mean() > _SPARSE else _SHIFTS[:2] if runs >= _MANY else _SHIFTS[:3]
    parts = max(1, min(len(shifts), int((missing & ~np.roll(missing, 1, axis=0)).sum())))  # as they are rolled
    for i, shift in enumerate(shifts[:2] if runs >= _PLENTY else shifts):
        rolled = np.roll(missing, int(shift * n), axis=0)
        begins = rolled & ~np.vstack([np.zeros((1, d), np.bool_), rolled[:-1]])
        run = np.cumsum(begins.T).reshape(d, n).T  # numbers of runs, attribute by attribute
        taken = rolled & ~missing & (run % parts == i % parts)
        if not taken.any():
            rows = np.arange(i, n, 10)
            taken[rows, np.random.default_rng(int(shift * 100)).integers(0, d, len(rows))] = True
            taken &= ~missing
        taken &= taken.cumsum(axis=0) <= (~missing).sum(axis=0) // 2  # half of an attribute is left to learn from
        # No row is to lack more than some row does: else those imputers win that need the least.
        many, most = (taken | missing).sum(axis=1, keepdims=True), int(missing.sum(axis=1).max(initial=0))
        rounds.append((taken & (many <= max(1, most)) & (whole | (many < d)), int(shift * n)))
    return [one for one in rounds if one[0].any()] or rounds[:1]
