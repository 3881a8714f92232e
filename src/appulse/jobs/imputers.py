"""The tables of a job file that say what fills holes: an imputer, its repository and its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from appulse.errors import BadArgument, nearest
from appulse.imputation.dependencies import DifferentialDependency, from_toml
from appulse.imputation.imputer import DependencyImputer
from appulse.imputation.in_time import LastValueImputer, SpeedImputer
from appulse.imputation.regression import RegressionImputer
from appulse.imputation.simple import MeanImputer, NearestImputer, ZeroFill
from appulse.imputation.versions import SavedImputer
from appulse.jobs.fields import Duration, Number, Place, Table, Text, taken_by
from appulse.jobs.sources import DataTable

__all__ = ["ImputerTable", "RepositoryTable"]

_OPTIONS = {
    "DependencyImputer": ("repository", "rules", "dependency", "joint", "marginal", "instances"),
    "RegressionImputer": ("repository", "k"),
    "NearestImputer": ("repository", "k"),
    "MeanImputer": ("repository",),
    "ZeroFill": (),
    "LastValueImputer": ("wait",),
    "SpeedImputer": ("speeds", "wait"),
    "SavedImputer": ("path",),
}
_AROUND = ("LastValueImputer", "SpeedImputer")
_NEEDED = {"repository": "a table with format and path", "path": "the folder that the imputer was saved to"}


class RepositoryTable(DataTable):
    """Files of complete rows."""


class DependencyTable(Table):
    """`appulse.DifferentialDependency` as a table."""

    determinants: Annotated[dict[str, Number], Field(min_length=1)]
    dependent: Text
    tolerance: Number
    confidence: Number = 1.0
    where: dict[str, Annotated[list[Number], Field(min_length=2, max_length=2)]] = {}

    def build(self) -> DifferentialDependency:
        where = {name: (low, high) for name, (low, high) in self.where.items()}
        return DifferentialDependency(self.determinants, self.dependent, self.tolerance, self.confidence, where)


class ImputerTable(Table):
    """An imputer of `appulse` by its name, ``kind``, with its arguments."""

    kind: Literal[
        "DependencyImputer",
        "RegressionImputer",
        "NearestImputer",
        "MeanImputer",
        "ZeroFill",
        "SavedImputer",
        "LastValueImputer",
        "SpeedImputer",
    ] = "DependencyImputer"
    repository: RepositoryTable | None = None
    rules: Place | None = None
    dependency: list[Annotated[DependencyTable, taken_by(DependencyTable.build)]] = []
    joint: bool = False
    marginal: Annotated[int, Field(ge=1)] = 256
    instances: Annotated[int, Field(ge=1)] | None = None
    k: Annotated[int, Field(ge=1)] | None = None
    path: Place | None = None
    speeds: dict[Text, Annotated[Number, Field(ge=0)]] = {}
    wait: Duration | None = None

    @model_validator(mode="after")
    def _has_what_its_kind_takes(self) -> ImputerTable:
        known = _OPTIONS[self.kind]
        if strange := sorted(self.model_fields_set - {"kind", *known}):
            raise ValueError(f"{strange[0]} is not for a {self.kind}, which takes: {', '.join(known) or 'nothing'}.")
        for name, what in _NEEDED.items():
            if name in known and getattr(self, name) is None:
                raise ValueError(f"a {self.kind} needs {name}: {what}.")
        if self.kind == "DependencyImputer" and (self.rules is None) == (not self.dependency):
            raise ValueError("give rules, a file as `appulse discover --out` writes it, or [[imputer.dependency]].")
        return self

    @property
    def waits(self) -> bool:
        """Whether it lets rows wait for those around them."""
        return self.kind in _AROUND

    def rules_at(self, place: Callable[[str], str]) -> list[DifferentialDependency]:
        """The rules, those of a file from where ``place`` says it is; raises `BadArgument`."""
        return [one.build() for one in self.dependency] if self.rules is None else from_toml(Path(place(self.rules)))

    def build(self, place: Callable[[str], str], read: Callable[[RepositoryTable], Any]) -> Any:
        """The imputer; ``read`` makes a frame of a repository. Raises `BadArgument`."""
        if self.path is not None:
            return SavedImputer(place(self.path))
        if self.kind in _AROUND:
            return self._around()
        if self.repository is None:
            return ZeroFill()
        rows, few = read(self.repository), {} if self.k is None else {"k": self.k}
        if self.kind == "DependencyImputer":
            settings: dict[str, Any] = {"joint": self.joint, "marginal": self.marginal}
            return DependencyImputer(rows, self.rules_at(place), instances=self.instances, **settings)
        kinds: tuple[Any, ...] = (RegressionImputer, NearestImputer, MeanImputer)
        return {kind.__name__: kind for kind in kinds}[self.kind](rows, **few)

    def _around(self) -> LastValueImputer | SpeedImputer:
        if self.kind == "LastValueImputer":
            return LastValueImputer(wait=self.wait)
        return SpeedImputer(self.speeds, wait=self.wait)

    def unread(self, place: Callable[[str], str], columns: list[str] | None) -> Any:
        """In the imputer's place where nothing is to be read but rules: knows which ``columns`` the repository has."""
        if self.kind in _AROUND:
            return _Around(self._around())
        rules = self.rules_at(place) if self.kind == "DependencyImputer" else []
        for rule in rules:
            strange = [name for name in (*rule.reads, rule.dependent) if columns is not None and name not in columns]
            if strange:
                raise BadArgument(f"The rule {rule} names {strange[0]!r}.{nearest(strange[0], columns or ())}")
        return _Unread(columns)


class _Around:
    """Binds as an imputer by the rows around would, and fills nothing."""

    def __init__(self, imputer: LastValueImputer | SpeedImputer) -> None:
        self.imputer = imputer

    def bind(self, attributes: Sequence[str]) -> Any:
        self.imputer.bind(attributes)  # raises for speeds of attributes that are not there
        return _Unread(None).bind(tuple(attributes))


class _Unread:
    """Binds as an imputer would, and fills nothing."""

    in_order = False

    def __init__(self, columns: Sequence[str] | None) -> None:
        self._columns = columns

    def bind(self, attributes: tuple[str, ...]) -> _Unread:
        known = attributes if self._columns is None else self._columns
        for name in attributes:
            if name not in known:
                raise BadArgument(f"The repository has no column {name!r}.{nearest(name, known)}")
        return self
