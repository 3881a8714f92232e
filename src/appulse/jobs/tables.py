"""The job file as a whole: sources, one operator, a sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from appulse.jobs.fields import Duration, Number, Settings, Table, Text
from appulse.jobs.sources import Format, SourceTable
from appulse.windows.definitions import (
    CountWindow,
    DeltaWindow,
    TimeWindow,
    TumblingWindow,
    UncertainCountWindow,
    Window,
)

__all__ = ["JobTable", "JoinTable", "SelfJoinTable", "SinkTable"]


class WindowTable(Table):
    """A window of `appulse` as a table, by the key that says which; text or a number alone is a `TimeWindow`."""

    time: Duration = None
    per_stream: dict[str, Duration] = {}
    count: Annotated[int, Field(ge=1)] | None = None
    uncertain_count: Annotated[int, Field(ge=1)] | None = None
    method: Literal["exact", "refined-normal", "normal", "poisson"] = "exact"
    max_rows: Annotated[int, Field(ge=1)] | None = None
    confidence: Annotated[Number, Field(gt=0, le=1)] | None = None
    delta: Text | None = None
    bound: Annotated[Number, Field(ge=0)] | None = None
    tumbling: Any = None

    @model_validator(mode="after")
    def _is_a_window(self) -> WindowTable:
        kinds = ("time", "count", "uncertain_count", "delta", "tumbling")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"names {' and '.join(given) or 'no kind of window'}. Give one of: {', '.join(kinds)}.")
        if self.per_stream and given != ["time"]:
            raise ValueError(f"per_stream is for windows of time, and this one is of {given[0]}.")
        if (self.bound is None) == (self.delta is not None):
            raise ValueError("a delta window has a column and a bound: { delta = 'column', bound = 100.0 }.")
        if self.uncertain_count is None and (self.method != "exact" or self.max_rows is not None):
            raise ValueError(f"method and max_rows are for uncertain_count, and this window is of {given[0]}.")
        if self.uncertain_count is not None and self.confidence is None:
            raise ValueError(
                "an uncertain count window has a confidence: { uncertain_count = 500, confidence = 0.95 }."
            )
        if self.confidence is not None and given[0] not in ("uncertain_count", "delta"):
            raise ValueError(f"confidence is for windows uncertain_count and delta, and this one is of {given[0]}.")
        self.build()
        return self

    def build(self) -> Window:
        """The window."""
        if self.count is not None:
            return CountWindow(self.count)
        if self.uncertain_count is not None and self.confidence is not None:
            return UncertainCountWindow(self.uncertain_count, self.confidence, self.method, self.max_rows)
        if self.delta is not None and self.bound is not None:
            return DeltaWindow(self.delta, self.bound, self.confidence)
        if self.tumbling is not None:
            return TumblingWindow(self.tumbling)
        return TimeWindow(self.time, self.per_stream or None)


def _as_window(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return {"time": given}
    # The one key of the first job files.
    return {"time" if key == "length" else key: value for key, value in given.items()}


class JoinTable(Table):
    """The arguments of `appulse.similarity_join`."""

    epsilon: Annotated[Number, Field(ge=0)]
    probability: Annotated[Number, Field(gt=0, le=1)]
    window: Annotated[WindowTable, BeforeValidator(_as_window)]
    emit: Literal["matches", "changes"] = "matches"
    on_reject: Literal["collect", "fail"] = "collect"


class SelfJoinTable(JoinTable):
    """The arguments of `appulse.self_join`."""

    different: Text | None = None


class SinkTable(Table):
    """Where answers, or rejects, go."""

    format: Format
    path: Text
    options: Settings = {}


class JobTable(Table):
    """A job file. A source takes from ``defaults`` what it does not say itself."""

    defaults: dict[str, Any] = {}
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
        if (self.similarity_join is None) == (self.self_join is None):
            raise ValueError("A job has one operator: give either [similarity_join] or [self_join].")
        count = len(self.sources)
        if self.self_join is not None and count != 1:
            raise ValueError(f"[self_join] pairs one source with itself, and there are {count}. Name one source.")
        if self.similarity_join is not None and count < 2:
            raise ValueError(f"[similarity_join] wants two sources or more, and there is {count}. Or use [self_join].")
        window = self.join.window.build()
        if isinstance(window, TimeWindow):
            window.micros(tuple(self.sources))
        return self

    @property
    def join(self) -> JoinTable:
        """The arguments of the operator, whichever it is."""
        join = self.similarity_join or self.self_join
        if join is None:  # pragma: no cover - checked above
            raise ValueError("a job without an operator")
        return join
