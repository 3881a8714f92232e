"""The job file as a whole: sources, one operator, a sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from appulse.api.readings import check_readings
from appulse.engines.options import Options
from appulse.errors import nearest
from appulse.jobs.alerts import Alerts
from appulse.jobs.association import AssignTable, NearestTable, OutliersTable
from appulse.jobs.fences import FenceEventsTable
from appulse.jobs.fields import CallTable, GroupedEpsilon, Metric, Number, OneOrMore, Place, Scale, Table, Text
from appulse.jobs.imputers import ImputerTable
from appulse.jobs.limits import LimitsTable
from appulse.jobs.motion import EncountersTable
from appulse.jobs.queries import QueriesTable
from appulse.jobs.readings import PhenomenaTable, SensorJoinTable
from appulse.jobs.sinks import Sink
from appulse.jobs.sources import DataTable, ReplayTable, Source
from appulse.jobs.windows import WindowTable, as_window
from appulse.model.stream import Stream
from appulse.operators.relational import AGGREGATES
from appulse.windows.definitions import TimeWindow

__all__ = ["OPERATORS", "JobTable", "JoinTable", "SelfJoinTable", "WindowAggregateTable"]

_OF_READINGS = ("sensor_join", "phenomena")
_MOVING = ("encounters", "fence_events")
_ASSOCIATIONS = ("nearest", "assign", "outliers")
OPERATORS = (
    "similarity_join",
    "self_join",
    *_ASSOCIATIONS,
    "window_aggregate",
    "match_queries",
    *_MOVING,
    *_OF_READINGS,
)


class OperatorTable(CallTable):
    """What every operator has."""

    window: Annotated[WindowTable, BeforeValidator(as_window)]


def _each_once(given: list[str]) -> list[str]:
    if len(set(given)) < len(given):
        raise ValueError(f"is {given!r}. Name each aggregate once.")
    return given


if TYPE_CHECKING:
    Aggregate: TypeAlias = str
else:
    Aggregate = Literal[AGGREGATES]
Asked = Annotated[
    list[Aggregate],
    Field(min_length=1),
    OneOrMore,
    AfterValidator(_each_once),
]


class PairsTable(OperatorTable):
    """The arguments of every join."""

    epsilon: GroupedEpsilon
    probability: Annotated[Number, Field(gt=0, le=1)]
    emit: Literal["matches", "changes"] = "matches"
    metric: Metric = "euclidean"
    scale: Scale | None = None


class JoinTable(PairsTable):
    """The arguments of `appulse.similarity_join`."""

    how: Literal["inner", "left", "right", "full", "left_anti"] = "inner"
    likelihood: bool = False
    density: Annotated[Number, Field(gt=0)] | None = None


class SelfJoinTable(PairsTable):
    """The arguments of `appulse.self_join`."""

    different: Text | None = None


class WindowAggregateTable(OperatorTable):
    """The arguments of `appulse.window_aggregate`."""

    _apart = ("aggregates",)

    aggregates: Annotated[dict[str, Asked], Field(min_length=1)]
    distribution: bool = False
    single_valued: bool = False

    @model_validator(mode="after")
    def _goes_together(self) -> WindowAggregateTable:
        wanted = {name for several in self.aggregates.values() for name in several}
        if self.single_valued and (self.distribution or wanted != {"sum"}):
            raise ValueError("single_valued is for sums, without distribution and other aggregates.")
        return self


class JobTable(Table):
    """A job file. A source takes from ``defaults`` what it does not say itself."""

    engine: Literal["spark", "local"] = "spark"
    defaults: dict[str, Any] = {}
    sources: dict[Text, Source] = {}
    similarity_join: JoinTable | None = None
    self_join: SelfJoinTable | None = None
    nearest: NearestTable | None = None
    assign: AssignTable | None = None
    outliers: OutliersTable | None = None
    window_aggregate: WindowAggregateTable | None = None
    match_queries: QueriesTable | None = None
    sensor_join: SensorJoinTable | None = None
    phenomena: PhenomenaTable | None = None
    encounters: EncountersTable | None = None
    fence_events: FenceEventsTable | None = None
    imputer: ImputerTable | None = None
    imputers: dict[str, ImputerTable] = {}
    sink: Sink
    rejects: Sink | None = None
    checkpoint: Place | None = None
    partitions: Annotated[int, Field(ge=1)] | None = None
    sample: Annotated[int, Field(ge=1)] | None = None
    max_output: Annotated[int, Field(ge=1)] | None = None
    prepare: Text | None = None
    limits: LimitsTable | None = None
    alerts: Alerts = []

    @model_validator(mode="before")
    @classmethod
    def _spread_defaults(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        shared, sources = given.get("defaults"), given.get("sources")
        if not isinstance(shared, Mapping) or not isinstance(sources, Mapping):
            return given
        spread = {name: {**shared, **own} if isinstance(own, Mapping) else own for name, own in sources.items()}
        return {**given, "sources": spread}

    @model_validator(mode="after")
    def _has_one_operator(self) -> JobTable:
        given = [name for name in OPERATORS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"A job has one operator: give one of [{'], ['.join(OPERATORS)}].")
        if not self.sources:
            raise ValueError(f"[{self.operator}] has nothing to read: give [sources.NAME].")
        self._check_clock()
        if self.operator in _OF_READINGS:
            self._check_readings()
            return self
        if self.operator in _MOVING:
            self._check_moving()
            return self
        if self.operator in _ASSOCIATIONS:
            self._check_association()
            return self
        count = len(self.sources)
        if self.self_join is not None and count != 1:
            raise ValueError(f"[self_join] pairs one source with itself, and there are {count}. Name one source.")
        if self.similarity_join is not None and count < 2:
            raise ValueError(f"[similarity_join] wants two sources or more, and there is {count}. Or use [self_join].")
        if self.window_aggregate is not None and count != 1:
            raise ValueError(f"[window_aggregate] is of one source, and there are {count}. Name one source.")
        if self.window_aggregate is not None and self.sample is not None:
            raise ValueError("sample plans the tiles of a join, and [window_aggregate] has none. Leave it out.")
        if self.match_queries is not None:
            self._check_queries(self.match_queries)
        self._check_imputers()
        given_window = self._given.window
        window = None if given_window is None else given_window.build()
        if isinstance(window, TimeWindow):
            window.micros(tuple(self.sources))
        return self

    def _check_clock(self) -> None:
        speeds = {name: one.speed for name, one in self.sources.items() if isinstance(one, ReplayTable)}
        if len(set(speeds.values())) > 1:
            given = ", ".join(f"sources.{name}.speed is {speed}" for name, speed in speeds.items())
            raise ValueError(f"{given}. Replayed streams share one clock: give them one speed.")

    def _check_readings(self) -> None:
        name = self.operator
        if len(self.sources) != 1:
            raise ValueError(f"[{name}] reads one source with all sensors, and there are {len(self.sources)}.")
        check_readings(self.streams()[0], name)
        if self.imputer is not None or self.imputers:
            raise ValueError(f"[imputer] fills the sources of a join, and [{name}] has none.")
        if self.phenomena is not None and self.sample is not None:
            raise ValueError("sample plans the tiles of a join, and [phenomena] have none. Leave it out.")

    def _check_association(self) -> None:
        name = self.operator
        count = len(self.sources)
        if self.outliers is not None and count > 2:
            raise ValueError(f"[outliers] are of one source, or of one and a reference, and there are {count}.")
        if self.outliers is None and count != 2:
            raise ValueError(f"[{name}] is of two sources, and there are {count}.")
        if self.imputer is not None or self.imputers:
            raise ValueError(f"[imputer] fills the sources of a join, and [{name}] is none.")
        if self.assign is not None and self.sample is not None:
            raise ValueError("sample plans the tiles of a join, and [assign] has none. Leave it out.")

    def _check_moving(self) -> None:
        name = self.operator
        if self.encounters is not None and len(self.sources) > 2:
            raise ValueError(f"[encounters] is of one source or two, and there are {len(self.sources)}.")
        if self.fence_events is not None and len(self.sources) > 1:
            raise ValueError(f"[fence_events] watches one source, and there are {len(self.sources)}. Name one source.")
        for source in self.sources if self.encounters is not None else ():
            if self.sources[source].motion is None:
                raise ValueError(f"[encounters] wants to know how things move: give sources.{source}.motion.")
        if self.imputer is not None or self.imputers:
            raise ValueError(f"[imputer] fills the sources of a join, and [{name}] is none.")
        if self.sample is not None:
            raise ValueError(f"sample plans the tiles of a join, and [{name}] has none. Leave it out.")

    def _check_queries(self, asked: QueriesTable) -> None:
        if self.sample is not None:
            raise ValueError("sample plans the tiles of a join, and [match_queries] has none. Leave it out.")
        if self.filling:
            raise ValueError("[imputer] fills the sources of a join, and [match_queries] is none.")
        if len(self.sources) == 1 and (asked.window is not None or asked.aggregate is not None):
            raise ValueError("window and aggregate of [match_queries] are for queries over two sources or more.")

    def _check_imputers(self) -> None:
        for name in self.imputers:
            if name not in self.sources:
                raise ValueError(f"[imputers.{name}] names no source.{nearest(name, self.sources)}")
        if self.imputer is not None and self.imputers:
            raise ValueError("Give [imputer], for all sources, or [imputers.NAME] for each, not both.")
        if self.window_aggregate is not None and self.filling:
            raise ValueError("[imputer] fills the sources of a join, and [window_aggregate] is none.")

    @property
    def filling(self) -> dict[str, ImputerTable]:
        """What fills each source that has something to be filled by."""
        return dict.fromkeys(self.sources, self.imputer) if self.imputer is not None else self.imputers

    def options(self, sample: Any = None) -> Options:
        """How the call is carried out."""
        return Options(partitions=self.partitions, sample=sample, max_output=self.max_output)

    @property
    def data(self) -> dict[str, DataTable]:
        """The files of rows that are read, each by its dotted path in the job file."""
        found: dict[str, DataTable | None] = {
            f"sources.{name}": source for name, source in self.sources.items() if isinstance(source, DataTable)
        }
        found |= {f"sources.{name}": one.files for name, one in self.sources.items() if isinstance(one, ReplayTable)}
        found["phenomena.locations"] = None if self.phenomena is None else self.phenomena.locations
        found["phenomena.neighbours"] = None if self.phenomena is None else self.phenomena.neighbours
        found["match_queries.changes"] = None if self.match_queries is None else self.match_queries.changes
        found |= {f"{self.filler(name)}.repository": one.repository for name, one in self.filling.items()}
        return {where: data for where, data in found.items() if data is not None}

    def filler(self, source: str) -> str:
        """The dotted path of what fills a source."""
        return "imputer" if self.imputer is not None else f"imputers.{source}"

    @property
    def operator(self) -> str:
        """The name of the operator."""
        return next(name for name in OPERATORS if getattr(self, name) is not None)

    def streams(self) -> list[Stream]:
        """The streams of the sources, without frames."""
        return [source.stream(None, name) for name, source in self.sources.items()]

    @property
    def _given(self) -> OperatorTable | QueriesTable:
        given: OperatorTable | QueriesTable = getattr(self, self.operator)
        return given

    @property
    def join(self) -> PairsTable:
        """The arguments of the join, whichever it is."""
        join = self.similarity_join or self.self_join
        if join is None:  # pragma: no cover - asked of joins only
            raise ValueError("a job without a join")
        return join

    def query_settings(self) -> dict[str, Any]:
        """The keyword arguments of a call of `match_queries`."""
        settings = {} if self.match_queries is None else self.match_queries.settings()
        if len(self.sources) == 1:  # where these are about several
            settings = {name: value for name, value in settings.items() if name not in ("window", "aggregate")}
        return settings
