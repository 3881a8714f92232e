"""Which row belongs to which, in a job file: the nearest rows, one partner each, and rows with few partners."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from appulse.jobs.fields import CallTable, GroupedEpsilon, Number
from appulse.jobs.windows import WindowTable, as_window

__all__ = ["AssignTable", "NearestTable", "OutliersTable"]


class NearestTable(CallTable):
    """The arguments of `appulse.nearest`."""

    epsilon: GroupedEpsilon
    window: Annotated[WindowTable, BeforeValidator(as_window)]
    k: Annotated[int, Field(ge=1)] = 1
    by: Literal["distance", "probability"] = "distance"
    probability: Annotated[Number, Field(ge=0, le=1)] = 0.0
    how: Literal["inner", "left"] = "inner"
    metric: Literal["euclidean", "cosine"] = "euclidean"


class OutliersTable(CallTable):
    """The arguments of `appulse.outliers`."""

    epsilon: GroupedEpsilon
    window: Annotated[WindowTable, BeforeValidator(as_window)]
    fewer_than: Annotated[int, Field(ge=1)]
    probability: Annotated[Number, Field(gt=0, le=1)]


def _as_blocks(given: Any) -> Any:
    return given if given == "tick" else as_window(given)


class AssignTable(CallTable):
    """The arguments of `appulse.assign`."""

    epsilon: GroupedEpsilon
    probability: Annotated[Number, Field(gt=0, le=1)]
    window: Annotated[Literal["tick"] | WindowTable, BeforeValidator(_as_blocks)]
    by: Literal["likelihood", "probability", "distance"] = "likelihood"
    method: Literal["optimal", "greedy"] = "optimal"
    density: Annotated[Number, Field(gt=0)] | None = None
    how: Literal["inner", "left", "right", "full", "left_anti"] = "inner"

    @model_validator(mode="after")
    def _has_blocks(self) -> AssignTable:
        window = self.window
        if isinstance(window, WindowTable) and (window.tumbling is None or isinstance(window.tumbling, int)):
            raise ValueError("[assign] goes by blocks of time: window = 'tick', or { tumbling = '10 seconds' }.")
        return self
