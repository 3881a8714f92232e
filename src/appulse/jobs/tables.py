"""The tables of a job file, as pydantic models: what may stand where, and which objects of the API it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from appulse.errors import BadArgument
from appulse.model.stream import Stream
from appulse.model.times import duration
from appulse.model.uncertainty import Ball, Exact, Gaussian, Model, Samples
from appulse.windows.definitions import TimeWindow

MODELS = ("Exact", "Samples", "Gaussian", "Ball")


def _is_duration(value: object) -> object:
    try:
        duration(value)
    except BadArgument as problem:
        raise ValueError(str(problem)) from None
    return value


def _as_window(value: object) -> object:
    return value if isinstance(value, Mapping) else {"length": value}


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"is {value}, wanted a finite number.")
    return value


def _are_settings(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if not isinstance(value, str | int | float):
            raise ValueError(f"{name} is {value!r}, wanted text, a number, true or false.")
    return given


Duration = Annotated[Any, AfterValidator(_is_duration)]
Settings = Annotated[dict[str, Any], AfterValidator(_are_settings)]
Text = Annotated[str, Field(min_length=1)]
Number = Annotated[float, AfterValidator(_finite)]


class Table(BaseModel):
    """A table of the file: nothing in it but what is declared, nothing converted from one type to another."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, given: object) -> object:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        if isinstance(given, Mapping) and (unknown := [key for key in given if key not in known]):
            raise PydanticCustomError("unknown_keys", "unknown keys", {"keys": unknown, "known": known})
        return given


class ExactTable(Table):
    """`ap.Exact` as a table."""

    model: Literal["Exact"]
    columns: list[str]

    def value(self) -> Model:
        return Exact(*self.columns)


class SamplesTable(Table):
    """`ap.Samples` as a table."""

    model: Literal["Samples"]
    column: Text
    weights: Text | None = None
    names: list[str] | None = None

    def value(self) -> Model:
        return Samples(self.column, self.weights, None if self.names is None else tuple(self.names))


class GaussianTable(Table):
    """`ap.Gaussian` as a table."""

    model: Literal["Gaussian"]
    columns: list[str]
    sigma: Any
    samples: int = 64

    def value(self) -> Model:
        return Gaussian(*self.columns, sigma=self.sigma, samples=self.samples)


class BallTable(Table):
    """`ap.Ball` as a table."""

    model: Literal["Ball"]
    columns: list[str]
    radius: Any
    samples: int = 64

    def value(self) -> Model:
        return Ball(*self.columns, radius=self.radius, samples=self.samples)


def _is_model(table: ExactTable | SamplesTable | GaussianTable | BallTable) -> Any:
    table.value()  # a BadArgument is a ValueError: pydantic reports it in its place
    return table


Value = Annotated[
    ExactTable | SamplesTable | GaussianTable | BallTable, Field(discriminator="model"), AfterValidator(_is_model)
]


class SourceTable(Table):
    """A stream: where its rows are, and the arguments of `ap.Stream` that say how to read them."""

    format: Literal["parquet", "csv", "json", "orc"]
    path: Text
    schema_: Text | None = Field(None, alias="schema")
    options: Settings = {}
    max_files_per_trigger: Annotated[int, Field(ge=1)] | None = None
    key: Text
    time: Text
    unit: str = "s"
    value: Value
    existence: Text | None = None
    partition_by: list[str] = []
    lateness: Duration | None = None

    @model_validator(mode="after")
    def _is_stream(self) -> SourceTable:
        self.stream(None, None)
        return self

    def stream(self, frame: Any, name: str | None) -> Stream:
        """The stream of the rows in a frame."""
        return Stream(
            frame,
            key=self.key,
            time=self.time,
            value=self.value.value(),
            existence=self.existence,
            partition_by=tuple(self.partition_by),
            lateness=self.lateness,
            unit=self.unit,
            name=name,
        )


class WindowTable(Table):
    """`ap.TimeWindow` as a table; text or a number alone stands for its length."""

    length: Duration
    per_stream: dict[str, Duration] = {}

    def window(self) -> TimeWindow:
        return TimeWindow(self.length, self.per_stream or None)


class JoinTable(Table):
    """The arguments of `ap.similarity_join`."""

    epsilon: Annotated[Number, Field(ge=0)]
    probability: Annotated[Number, Field(gt=0, le=1)]
    window: Annotated[WindowTable, BeforeValidator(_as_window)]
    on_reject: Literal["collect", "fail"] = "collect"


class SelfJoinTable(JoinTable):
    """The arguments of `ap.self_join`."""

    different: Text | None = None


class SinkTable(Table):
    """Where answers or rejects go."""

    format: Literal["parquet", "csv", "json", "orc"]
    path: Text
    options: Settings = {}


class JobTable(Table):
    """A whole job file."""

    sources: dict[str, SourceTable]
    similarity_join: JoinTable | None = None
    self_join: SelfJoinTable | None = None
    sink: SinkTable
    rejects: SinkTable | None = None
    checkpoint: Text | None = None
    partitions: Annotated[int, Field(ge=1)] | None = None
    sample: Annotated[int, Field(ge=1)] | None = None
    prepare: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _spreads_defaults(cls, given: Any) -> Any:
        """Give each source what ``[defaults]`` says and it does not say itself."""
        if not isinstance(given, Mapping) or not isinstance(given.get("defaults"), Mapping):
            return given
        sources = given.get("sources")
        if not isinstance(sources, Mapping):
            return given
        shared = given["defaults"]
        spread = {name: {**shared, **own} if isinstance(own, Mapping) else own for name, own in sources.items()}
        return {key: value for key, value in given.items() if key != "defaults"} | {"sources": spread}

    @model_validator(mode="after")
    def _is_a_job(self) -> JobTable:
        asked = [self.similarity_join, self.self_join]
        if asked.count(None) != 1:
            raise ValueError("a job has one operator: give either [similarity_join] or [self_join].")
        wanted = "at least two sources" if self.self_join is None else "exactly one source"
        if (len(self.sources) == 1) != (self.self_join is not None):
            operator = "similarity_join" if self.self_join is None else "self_join"
            raise ValueError(f"{operator} wants {wanted}, and there are {len(self.sources)}.")
        self.join.window.window().micros(tuple(self.sources))
        return self

    @property
    def join(self) -> JoinTable:
        """The operator of the job."""
        join = self.similarity_join or self.self_join
        assert join is not None
        return join
