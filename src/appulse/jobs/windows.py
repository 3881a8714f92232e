"""The windows of a job file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from appulse.jobs.fields import Duration, Number, Table, Text
from appulse.windows.definitions import (
    CountWindow,
    DeltaWindow,
    TimeWindow,
    TumblingWindow,
    UncertainCountWindow,
    Window,
)

__all__ = ["WindowTable", "as_window"]


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


def as_window(given: Any) -> Any:
    """A window as a table, where it is text or a number alone."""
    if not isinstance(given, Mapping):
        return {"time": given}
    # The one key of the first job files.
    return {"time" if key == "length" else key: value for key, value in given.items()}
