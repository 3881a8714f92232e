"""Imputers: what fills the missing attributes of a stream's rows, and the one by differential dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

import numpy as np

from appulse.arguments import (
    NAME,
    NOTHING,
    REAL,
    Attributes,
    Count,
    Folder,
    Kind,
    checked,
    either,
    instance,
    mapping,
    several,
)
from appulse.errors import BadArgument, nearest
from appulse.imputation import storage
from appulse.imputation.dependencies import DifferentialDependency
from appulse.imputation.lattice import MOST_RULES, Lattice
from appulse.imputation.repository import Repository
from appulse.imputation.samples import MOST_COMBINED, Choices, expanded
from appulse.imputation.verification import Verification, check
from appulse.model.meaning import digest, without_defaults

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.filled import Fill, Filled
    from appulse.model.meaning import Meaning

MARGINAL = "marginal"
_MISSING = Kind("NaN", lambda value: None if np.isnan(value) else REAL.take(value))
_MOST_RULES = 62  # a bit each


class Imputer(Protocol):
    """Anything that can fill the attributes of a stream: ``bind`` says which, in the order of the value."""

    def bind(self, attributes: Sequence[str]) -> Fill:
        """What fills rows with these attributes; raises `BadArgument` where it cannot."""
        ...


Rules: TypeAlias = Annotated[
    Sequence[DifferentialDependency],
    several(
        instance(DifferentialDependency, "a rule"),
        "a list of rules: ap.DifferentialDependency(...)",
        single=DifferentialDependency,
    ),
]
_Verified: TypeAlias = Annotated[
    Sequence[Verification], several(instance(Verification, "how a rule fared"), "what verified= of an imputer returned")
]
_Row: TypeAlias = Annotated[
    Mapping[str, float | None],
    mapping(NAME, either(REAL, NOTHING, _MISSING), "a mapping from attributes to numbers, None where one is missing"),
]


@checked
class DependencyImputer:
    """Fills missing attributes from the matching rows of a repository, by differential dependencies.

    An attribute is filled by the first combination of rules, in the order of its lattice, whose determinants were
    observed and that at least one row matches; the fill is the distribution of values among the matches. It depends
    only on the row, the rules and the repository.

    Arguments:
    * ``repository``: any frame of complete rows.
    * ``rules``: a list of at most 62 `DifferentialDependency` objects, which must hold on the repository.
    * ``joint``: fills several missing attributes from the same rows, by at most ten rules, the first of each attribute.
      False: they are independent of each other, but for rows that lack every attribute and those that would have more
      than 16,777,216 combinations: these are filled as with True, and `explain` has the number of the latter.
    * ``marginal``: where no row matches any combination, the fill is the distribution over the whole repository,
      reported as ``"marginal"``, in at most so many values, at evenly spaced quantiles.
    * ``instances``: the greatest number of samples of a row: an approximation, by quantiles of each attribute. None: no
      limit.
    * ``verified``: the result of an earlier check of the rules, which is then not repeated.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` for a wrong argument, an unfit repository, and a rule that does not hold, with two rows against
    it.

    Ren et al. 2019, sections 2.2 and 3.

    >>> known = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [10.0, 20.0, 30.0, 40.0]})
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> rule = ap.DifferentialDependency({"x": 0.5}, "y", 5.0)
    >>> filled = ap.impute(stream, ap.DependencyImputer(known, [rule])).frame
    >>> filled["imputed"].to_pylist(), filled["filled"].to_pylist()
    ([[[2.1, 20.0]]], [[{'attribute': 'y', 'rule': 'x(0.5) -> y(5)'}]])
    """

    def __init__(
        self,
        repository: Any,
        rules: Rules,
        *,
        joint: bool = False,
        marginal: Count = 256,
        instances: Count | None = None,
        verified: _Verified | None = None,
    ) -> None:
        self.repository = repository if isinstance(repository, Repository) else Repository(repository)
        self.rules = tuple(rules)
        self.joint, self.most_marginal, self.instances = joint, marginal, instances
        if len(self.rules) > _MOST_RULES:
            raise BadArgument(f"DependencyImputer got {len(self.rules)} rules; at most {_MOST_RULES} are supported.")
        #: What has been made so far, by what it fills and the numbers of its rules.
        self.lattices: dict[tuple[tuple[str, ...], tuple[int, ...]], Lattice] = {}
        self.verified: list[Verification] = self._checked() if verified is None else list(verified)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments beside repository and rules."""
        return {"joint": self.joint, "marginal": self.most_marginal, "instances": self.instances}

    @checked
    def save(self, folder: Folder) -> int:
        """Save it to a folder as the newest version, with its indexes and checks, and return the version's number.

        `SavedImputer` and `load` take it from there. Versions of a folder differ in rows alone.
        """
        self.prepare()
        return storage.save(stored(self), Path(folder))

    @classmethod
    @checked
    def load(cls, folder: Folder, version: Count | None = None) -> DependencyImputer:
        """What `save` put into a folder, by default its newest version.

        Rows and indexes are mapped into memory, so this takes as long as reading the file once, to see that it is
        whole.
        """
        path = Path(folder)
        number = storage.newest_in(path) if version is None else version
        return read(storage.file_of(path, number), check=True)

    @checked
    def prepare(self, attributes: Attributes | None = None) -> None:
        """Build the indexes for single holes, of all or these columns, now and not when first needed."""
        names = tuple(self.repository.names if attributes is None else attributes)
        for name in names:
            self.lattice((name,), names)

    def meaning(self) -> Meaning:
        """What it is made of, in plain JSON."""
        return self.meaning_over({"repository": self.repository.meaning()})

    def meaning_over(self, rows: Meaning) -> Meaning:
        """Its rules and settings, with what is said of the rows they are used on."""
        rules = [rule.meaning() for rule in self.rules]
        meaning = {"kind": "DependencyImputer", "rules": rules, **self.settings, **rows}
        return without_defaults(meaning, {"joint": False, "marginal": 256, "instances": None})

    @property
    def version(self) -> str:
        """A short text that differs where fills may."""
        return digest(self.meaning())

    def append(self, rows: Any) -> None:
        """Add complete rows to the repository. Rules must hold on them, too."""
        before = self.repository, self.lattices
        self.repository, self.lattices = self.repository.extended(rows), {}
        try:
            self.verified = self._checked()
        except BadArgument:
            self.repository, self.lattices = before
            raise

    def _checked(self) -> list[Verification]:
        """How the rules fare, each looked at by the index that is going to fill its dependent."""
        found = []
        for rule in self.rules:
            for name in (*rule.reads, rule.dependent):
                self.repository.matrix([name])  # raises for a column that is not there
            few = sum(other.dependent == rule.dependent for other in self.rules) <= MOST_RULES
            index = self.lattice((rule.dependent,), self.repository.names).index if few else None
            found.append(check(self.repository, rule, index))
        return found

    @checked
    def bind(self, attributes: Attributes) -> DependencyFill:
        """The object that fills rows with these attributes."""
        for name in attributes:
            if name not in self.repository.names:
                raise BadArgument(
                    f"The repository has no column {name!r}, which the stream's value has."
                    f"{nearest(name, self.repository.names)}"
                )
        return DependencyFill(self, tuple(attributes))

    def lattice(self, dependents: tuple[str, ...], attributes: tuple[str, ...]) -> Lattice:
        """The combined rules that fill some attributes together, of values that have these attributes."""
        known = set(attributes) - set(dependents)
        numbers = tuple(
            k for k, rule in enumerate(self.rules) if rule.dependent in dependents and known.issuperset(rule.reads)
        )
        if len(dependents) > 1 and len(numbers) > MOST_RULES:
            numbers = self._some(dependents, numbers)
        lattice = self.lattices.get((dependents, numbers))
        if lattice is None:
            lattice = Lattice(self.repository, [self.rules[k] for k in numbers], numbers, dependents)
            self.lattices[dependents, numbers] = lattice
        return lattice

    def _some(self, dependents: tuple[str, ...], numbers: tuple[int, ...]) -> tuple[int, ...]:
        """As many rules as can be combined: the first of each attribute, then the second, and so on."""
        of = {name: [k for k in numbers if self.rules[k].dependent == name] for name in dependents}
        turns = sorted((own.index(k), k) for own in of.values() for k in own)
        return tuple(sorted(k for _, k in turns[:MOST_RULES]))

    def describe(self, way: int) -> str:
        """The name of a way to fill: its rules, or ``"marginal"``."""
        return " and ".join(str(rule) for k, rule in enumerate(self.rules) if way >> k & 1) or MARGINAL

    @checked
    def explain(self, row: _Row) -> list[dict[str, Any]]:
        """What fills each hole of a row: ``attribute``, ``rule``, and the ``rows`` behind it, by place.

        Where the marginal does, these are all rows of the repository.
        """
        attributes = tuple(row)
        values = np.array([[np.nan if value is None else float(value) for value in row.values()]])
        if np.isnan(values).all():
            raise BadArgument("explain() got a row without any value. Give at least one.")
        fill = self.bind(attributes)
        way = fill.fill(values, np.zeros(1, np.int64), np.zeros(1, np.int64)).way[0]
        return [
            {"attribute": name, "rule": self.describe(int(way[i])), "rows": self._rows_behind(int(way[i]), row)}
            for i, name in enumerate(attributes)
            if np.isnan(values[0, i])
        ]

    def _rows_behind(self, way: int, row: Mapping[str, float | None]) -> list[int]:
        from appulse.imputation.dependencies import within

        inside = np.ones(len(self.repository), bool)
        for k, rule in enumerate(self.rules):
            if not way >> k & 1:
                continue
            for name, of in rule.determinants:
                x, column = float(row[name] or 0.0), self.repository[name]
                inside &= (column >= x - within(of)) & (column <= x + within(of))
            for name, (low, high) in rule.where:
                inside &= (self.repository[name] >= low) & (self.repository[name] <= high)
        return [int(i) for i in np.flatnonzero(inside)]


def stored(imputer: DependencyImputer) -> storage.Stored:
    """What a file is to hold of an imputer."""
    made = imputer.repository, imputer.rules, imputer.settings, imputer.verified, imputer.lattices
    return storage.Stored(*made)


def read(path: Path, *, check: bool) -> DependencyImputer:
    """The imputer in a file, mapped into memory; ``check`` reads all of it once."""
    held = storage.read_file(path, check=check)
    imputer = DependencyImputer(held.repository, held.rules, **held.settings, verified=held.verified)
    imputer.lattices.update(held.lattices)
    return imputer


class DependencyFill:
    """A `DependencyImputer` for values of given attributes."""

    in_order = False
    report = ""  # how it was chosen, or how it filled, where there is something to say
    together = 0  # rows whose holes were filled together for want of room

    def __init__(self, imputer: DependencyImputer, attributes: tuple[str, ...]) -> None:
        self.imputer, self.attributes = imputer, attributes

    def meaning(self) -> Meaning:
        return self.imputer.meaning()

    def describe(self, way: int) -> str:
        return self.imputer.describe(way)

    def explain(self, row: Mapping[str, float | None]) -> list[dict[str, Any]]:
        """See `DependencyImputer.explain`."""
        return self.imputer.explain(row)

    def prepare(self) -> None:
        """Make the indexes for single holes now, rather than when they are first needed."""
        self.imputer.prepare(self.attributes)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:  # noqa: ARG002 - rows are filled one by one
        return expanded(values, self.choices, self.imputer.instances, together=self._together)

    def choices(self, values: Floats, holes: Ints, rows: Ints) -> list[Choices]:  # noqa: ARG002 - any rows
        """Distributions for rows that lack just the attributes ``holes``: one for each, or one for all together."""
        return [self._choices(values, holes, part) for part in self._parts(holes)]

    def _parts(self, holes: Ints) -> list[Ints]:
        """The holes of rows by what is filled together: all where everything is missing, for no rule fills that."""
        if self.imputer.joint or len(holes) == len(self.attributes):
            return [holes]
        return [holes[k : k + 1] for k in range(len(holes))]

    def _together(self, values: Floats, holes: Ints, rows: Ints) -> list[Choices]:
        """One distribution for all holes of rows that would have too many combinations of what fills each."""
        self.together += len(rows)
        self.report = f"holes of {self.together:,} rows were filled together: apart they have too many combinations"
        return [self._choices(values, holes, holes)]

    def boxes(self, values: Floats) -> tuple[Floats, Floats]:
        """Boxes that hold all samples of the rows, (n, d) each, without filling them: from the index alone.

        Ren et al. 2019, Lemma 4.1: what lies apart by its boxes lies apart.
        """
        lows, highs = values.copy(), values.copy()
        missing = np.isnan(values)
        for pattern in np.unique(missing, axis=0):
            rows = np.flatnonzero((missing == pattern).all(axis=1))
            holes = np.flatnonzero(pattern)
            if len(holes) == 0:
                continue
            most = 1
            for part in self._parts(holes):
                most *= len(self._lattice(part).index.values)
                lows[np.ix_(rows, part)], highs[np.ix_(rows, part)] = self._hulls(values[rows], holes, part)
            if len(self._parts(holes)) > 1 and most > MOST_COMBINED:  # then it may be all together
                low, high = self._hulls(values[rows], holes, holes)
                at = np.ix_(rows, holes)
                lows[at], highs[at] = np.minimum(lows[at], low), np.maximum(highs[at], high)
        return lows, highs

    def _hulls(self, values: Floats, holes: Ints, part: Ints) -> tuple[Floats, Floats]:
        lattice = self._lattice(part)
        nodes = lattice.usable(self._observed(holes))
        return lattice.index.hulls(values[:, self._places(lattice)], nodes, lattice.constraints)

    def _lattice(self, part: Ints) -> Lattice:
        return self.imputer.lattice(tuple(self.attributes[k] for k in part), self.attributes)

    def _places(self, lattice: Lattice) -> Ints:
        return np.array([self.attributes.index(axis) for axis in lattice.axes], np.int64)

    def _observed(self, holes: Ints) -> frozenset[str]:
        return frozenset(self.attributes) - {self.attributes[k] for k in holes}

    def _choices(self, values: Floats, holes: Ints, part: Ints) -> Choices:
        lattice = self._lattice(part)
        nodes = lattice.usable(self._observed(holes))
        rows = values[:, self._places(lattice)]
        place, first, code, times = lattice.index.fill(rows, nodes, lattice.constraints)
        # Rows that nothing matched share one distribution, after those of the others.
        marginal, shares = lattice.marginal(self.imputer.most_marginal)
        count = np.diff(first)
        total = np.repeat(np.add.reduceat(times, first[:-1][count > 0]) if len(times) else times, count[count > 0])
        alone = place < 0
        begin = np.where(alone, len(code), first[:-1])
        way = np.zeros(len(values), np.int64)
        if len(nodes):
            way = np.where(alone, 0, lattice.ways[nodes[place]])
        return Choices(
            part,
            begin,
            np.where(alone, len(marginal), count),
            np.concatenate([lattice.index.values[code], marginal]),
            np.concatenate([times / total, shares]),
            way,
        )
