"""appulse: exact probabilistic joins over streams nobody can fully trust.

    import appulse as ap

Everything public is here; nothing heavy is imported until it is used (`import appulse` brings no Spark).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appulse.api import (
        QueryMatch,
        SensorJoin,
        SimilarityJoin,
        ask,
        explain,
        filter,
        impute,
        listen,
        match_queries,
        rejects,
        self_join,
        sensor_join,
        session,
        similarity_join,
        start,
        window_aggregate,
    )
    from appulse.engines.call import Options
    from appulse.engines.sensors import SensorOptions
    from appulse.errors import (
        AppulseError,
        BadArgument,
        BadInput,
        CappedWindow,
        CheckpointError,
        JobError,
        NotBuilt,
        SessionError,
        StateError,
        StorageError,
    )
    from appulse.imputation.dependencies import DifferentialDependency
    from appulse.imputation.imputer import DependencyImputer
    from appulse.model.stream import Stream
    from appulse.model.uncertainty import Ball, Exact, Gaussian, Incomplete, Samples
    from appulse.windows.definitions import CountWindow, DeltaWindow, TimeWindow, TumblingWindow, UncertainCountWindow

__version__ = "0.1.0"

_HOMES = {
    "appulse.api": (
        "QueryMatch",
        "SensorJoin",
        "SimilarityJoin",
        "ask",
        "explain",
        "filter",
        "impute",
        "listen",
        "match_queries",
        "rejects",
        "self_join",
        "sensor_join",
        "session",
        "similarity_join",
        "start",
        "window_aggregate",
    ),
    "appulse.engines.call": ("Options",),
    "appulse.engines.sensors": ("SensorOptions",),
    "appulse.errors": (
        "AppulseError",
        "BadArgument",
        "BadInput",
        "CappedWindow",
        "CheckpointError",
        "JobError",
        "NotBuilt",
        "SessionError",
        "StateError",
        "StorageError",
    ),
    "appulse.imputation.dependencies": ("DifferentialDependency",),
    "appulse.imputation.imputer": ("DependencyImputer",),
    "appulse.model.stream": ("Stream",),
    "appulse.model.uncertainty": ("Ball", "Exact", "Gaussian", "Incomplete", "Samples"),
    "appulse.windows.definitions": (
        "CountWindow",
        "DeltaWindow",
        "TimeWindow",
        "TumblingWindow",
        "UncertainCountWindow",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AppulseError",
    "BadArgument",
    "BadInput",
    "Ball",
    "CappedWindow",
    "CheckpointError",
    "CountWindow",
    "DeltaWindow",
    "DependencyImputer",
    "DifferentialDependency",
    "Exact",
    "Gaussian",
    "Incomplete",
    "JobError",
    "NotBuilt",
    "Options",
    "QueryMatch",
    "Samples",
    "SensorJoin",
    "SensorOptions",
    "SessionError",
    "SimilarityJoin",
    "StateError",
    "StorageError",
    "Stream",
    "TimeWindow",
    "TumblingWindow",
    "UncertainCountWindow",
    "__version__",
    "ask",
    "explain",
    "filter",
    "impute",
    "listen",
    "match_queries",
    "rejects",
    "self_join",
    "sensor_join",
    "session",
    "similarity_join",
    "start",
    "window_aggregate",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'appulse' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
