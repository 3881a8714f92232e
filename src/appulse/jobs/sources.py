"""The tables of a job file that say where rows are and what they mean."""

from __future__ import annotations

from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from appulse.api.replaying import ENDINGS, MAX
from appulse.jobs.fields import Ahead, Duration, Number, OneOrMore, Place, Settings, Table, Text, options_of, taken_by
from appulse.jobs.motion import MotionTable
from appulse.model.existence import Bursts
from appulse.model.stream import Stream
from appulse.model.uncertainty import Ball, Exact, Gaussian, Incomplete, Model, Position, Samples
from appulse.queries.condition import parse

__all__ = ["MODELS", "DataTable", "FilesTable", "MqttTable", "ReplayTable", "Source", "SourceTable", "TopicsTable"]

#: What to do about files of CSV without names of columns.
NAMELESS = (
    "If their first line has them, give options = { header = true }; else name them in order: "
    'schema = "id string, at double, ...".'
)
Format = Literal["parquet", "csv", "json", "orc", "delta"]
MODELS = ("Exact", "Samples", "Gaussian", "Ball", "Position", "Incomplete")


class ExactTable(Table):
    """`appulse.Exact` as a table."""

    model: Literal["Exact"]
    columns: list[str]

    def build(self) -> Model:
        return Exact(*self.columns)


class SamplesTable(Table):
    """`appulse.Samples` as a table."""

    model: Literal["Samples"]
    column: Text
    weights: Text | None = None
    names: list[str] | None = None

    def build(self) -> Model:
        return Samples(self.column, self.weights, None if self.names is None else tuple(self.names))


class GaussianTable(Table):
    """`appulse.Gaussian` as a table."""

    model: Literal["Gaussian"]
    columns: list[str]
    sigma: Any = None
    covariance: Any = None
    ellipse: Any = None
    samples: int = 64

    def build(self) -> Model:
        return Gaussian(
            *self.columns,
            sigma=self.sigma,
            covariance=self.covariance,
            ellipse=self.ellipse,
            samples=self.samples,
        )


class BallTable(Table):
    """`appulse.Ball` as a table."""

    model: Literal["Ball"]
    columns: list[str]
    radius: Any
    samples: int = 64

    def build(self) -> Model:
        return Ball(*self.columns, radius=self.radius, samples=self.samples)


class PositionTable(Table):
    """`appulse.Position` as a table."""

    model: Literal["Position"]
    lat: Text = ""
    lon: Text = ""
    geography: Text | None = None
    sigma: Any = 0.0
    ellipse: Any = None
    altitude: Text | None = None
    altitude_sigma: Any = 0.0
    earth: str = "wgs84"

    def build(self) -> Model:
        given = {name: getattr(self, name) for name in ("lat", "lon", "geography") if getattr(self, name)}
        return Position(
            **given,
            sigma=self.sigma,
            ellipse=self.ellipse,
            altitude=self.altitude,
            altitude_sigma=self.altitude_sigma,
            earth=self.earth,
        )


class IncompleteTable(Table):
    """`appulse.Incomplete` as a table."""

    model: Literal["Incomplete"]
    columns: list[str]
    sigma: Any = 0.0

    def build(self) -> Model:
        return Incomplete(*self.columns, sigma=self.sigma)


ModelTable = ExactTable | SamplesTable | GaussianTable | BallTable | PositionTable | IncompleteTable


class BurstsTable(Table):
    """`appulse.Bursts` as a table; text names a column of rows that exist independently."""

    column: Text
    correlation: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.0

    def build(self) -> str | Bursts:
        return Bursts(self.column, correlation=self.correlation) if self.correlation else self.column


def _as_existence(given: Any) -> Any:
    if given is not None and not isinstance(given, str | dict):
        raise ValueError(f"is {given!r}, wanted the name of a column, or a table of column and correlation.")
    return {"column": given} if isinstance(given, str) else given


def _as_model(given: Any) -> Any:
    return {"model": "Exact", "columns": [given]} if isinstance(given, str) else given


def _as_speed(given: Any) -> Any:
    if isinstance(given, str) and given != MAX:
        raise ValueError(f"is {given!r}, wanted a number above 0, or 'max'.")
    return given


class DataTable(Table):
    """Files of rows, or a Delta table, to be read or written."""

    format: Format
    path: Place
    options: Settings = {}


class FilesTable(DataTable):
    """Files that are read as they come."""

    schema_: Text | None = Field(default=None, alias="schema")
    max_files_per_trigger: Annotated[int, Field(ge=1)] | None = None


class StreamTable(Table):
    """The arguments of `appulse.Stream` that say what rows mean, and filters."""

    key: Text
    time: Text
    unit: str = "s"
    value: Annotated[
        ModelTable, Field(discriminator="model"), taken_by(methodcaller("build")), BeforeValidator(_as_model)
    ]
    existence: Annotated[BurstsTable | None, BeforeValidator(_as_existence)] = None
    partition_by: list[str] = []
    lateness: Duration | None = None
    idle_after: Duration | None = None
    ahead: Ahead = "1 hour"
    order: Literal["time", "arrival"] = "time"
    where: Annotated[list[Annotated[Text, taken_by(parse)]], OneOrMore] = []
    carry: Annotated[list[Text], OneOrMore] = []
    change: Text | None = None
    motion: Annotated[MotionTable, Field(discriminator="kind"), taken_by(methodcaller("build"))] | None = None
    margin: Any = 0.0

    @model_validator(mode="after")
    def _is_a_stream(self) -> StreamTable:
        self.stream(None, None)
        return self

    def stream(self, frame: Any, name: str | None) -> Stream:
        """The stream of a frame's rows."""
        return Stream(
            frame,
            key=self.key,
            time=self.time,
            value=self.value.build(),
            existence=None if self.existence is None else self.existence.build(),
            partition_by=tuple(self.partition_by),
            lateness=self.lateness,
            idle_after=self.idle_after,
            ahead=self.ahead,
            order=self.order,
            unit=self.unit,
            name=name,
            where=tuple(self.where),
            carry=tuple(self.carry),
            change=self.change,
            motion=None if self.motion is None else self.motion.build(),
            margin=self.margin,
        )

    @property
    def conditions_columns(self) -> list[str]:
        """Columns, and dimensions of the value, that the conditions name."""
        return [name for text in self.where for name in parse(text).columns]


class SourceTable(StreamTable, FilesTable):
    """A stream of files, or of a Delta table."""


class PasswordTable(Table):
    """The name of what the environment holds."""

    env: Text


class TopicsTable(StreamTable):
    """A stream of Kafka messages. ``servers`` are its brokers; ``schema`` is that of the values of messages."""

    format: Literal["kafka"]
    servers: Text
    topics: Annotated[list[Text], Field(min_length=1), OneOrMore]
    schema_: Text = Field(alias="schema")
    message: Literal["json", "avro"] = "json"
    max_messages_per_trigger: Annotated[int, Field(ge=1)] | None = None
    options: Settings = {}

    def reading(self) -> dict[str, Any]:
        """Spark's options; all that the topics hold is read, unless ``startingOffsets`` says from where on."""
        found = {"startingOffsets": "earliest", **options_of(self.options)}
        found |= {"kafka.bootstrap.servers": self.servers, "subscribe": ",".join(self.topics)}
        if self.max_messages_per_trigger is not None:
            found["maxOffsetsPerTrigger"] = self.max_messages_per_trigger
        return found


class MqttTable(StreamTable):
    """A stream of messages of an MQTT broker. ``spool`` is a folder of the driver for what is not answered yet."""

    format: Literal["mqtt"]
    host: Text
    port: Annotated[int, Field(ge=1, le=65_535)] = 1883
    topics: Annotated[list[Text], Field(min_length=1), OneOrMore]
    schema_: Text = Field(alias="schema")
    spool: Place
    client_id: Text | None = None
    username: Text | None = None
    password: PasswordTable | None = None
    tls: bool = False
    distinct: Literal["redelivered", "payload", "none"] = "redelivered"
    max_messages_per_trigger: Annotated[int, Field(ge=1)] | None = None

    def reading(self) -> dict[str, Any]:
        """The arguments of `appulse.MqttReader` but for the spool."""
        names = ("host", "topics", "port", "client_id", "username", "tls", "distinct")
        found = {name: getattr(self, name) for name in names}
        return found | {"password_env": None if self.password is None else self.password.env}


class ReplayTable(StreamTable):
    """A stream of rows of files, played again by their own times; ``speed`` is a multiple of these, or "max"."""

    format: Literal["replay"]
    path: Place
    speed: Annotated[Annotated[Number, Field(gt=0)] | Literal["max"], BeforeValidator(_as_speed)] = 1.0
    decode: Literal["ais", "sbs"] | None = None

    @property
    def files(self) -> DataTable | None:
        """The same rows as files, which come as fast as they can be read; None where Spark has no such format."""
        kind: Any = None if self.decode else ENDINGS.get(Path(self.path).suffix.lower())
        return None if kind in (None, "ipc") else DataTable(format=kind, path=self.path)


def format_of(given: Any) -> Any:
    """The format that a table names, before or after it was read."""
    return given.get("format") if isinstance(given, dict) else getattr(given, "format", None)


def _kind_of_source(given: Any) -> str:
    return _SOURCES.get(str(format_of(given)), "SourceTable")


_SOURCES = {"kafka": "TopicsTable", "mqtt": "MqttTable", "replay": "ReplayTable"}
Source = Annotated[
    Annotated[SourceTable, Tag("SourceTable")]
    | Annotated[TopicsTable, Tag("TopicsTable")]
    | Annotated[MqttTable, Tag("MqttTable")]
    | Annotated[ReplayTable, Tag("ReplayTable")],
    Discriminator(_kind_of_source),
]
