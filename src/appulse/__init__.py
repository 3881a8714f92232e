"""appulse: join moving, uncertain things by distance and time, with exact probabilities.

    import appulse as ap

Everything public is here; nothing heavy is imported until it is used (`import appulse` brings no Spark).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appulse import lab
    from appulse.api.aggregates import WindowAggregate, window_aggregate
    from appulse.api.association import Assign, Nearest, assign, nearest
    from appulse.api.batches import stream_batches
    from appulse.api.collecting import SampleCollector, collect_samples
    from appulse.api.fences import FenceEvents, fence_advice, fence_events
    from appulse.api.joins import SimilarityJoin, explain_pair, self_join, similarity_join
    from appulse.api.motion import Encounters, encounters
    from appulse.api.mqtt import MqttReader, mqtt_stream
    from appulse.api.outlying import Outliers, outliers
    from appulse.api.planning import plan
    from appulse.api.queries import QueryMatch, ask, match_queries
    from appulse.api.readings import Phenomena, SensorJoin, phenomena, sensor_join
    from appulse.api.replaying import replay
    from appulse.api.results import explain, rejects
    from appulse.api.running import listen, session, start
    from appulse.api.streams import decode_messages, discover_dependencies, filter, impute
    from appulse.engines.explain import Explanation
    from appulse.engines.options import Options
    from appulse.engines.planning import Plan
    from appulse.errors import (
        AllRejected,
        AppulseError,
        BadArgument,
        BadInput,
        CappedWindow,
        CheckpointError,
        ExplodingOutput,
        GrownFile,
        JobError,
        LateRows,
        NotBuilt,
        OutputLimit,
        SessionError,
        StateError,
        StateLimit,
        StorageError,
        SwappedDimensions,
        SwappedPlaces,
        TiedFiles,
        UnlikelyUnit,
    )
    from appulse.imputation.choosing import AutoImputer
    from appulse.imputation.dependencies import DifferentialDependency
    from appulse.imputation.imputer import DependencyImputer
    from appulse.imputation.in_time import LastValueImputer, SpeedImputer
    from appulse.imputation.interpolation import InterpolationImputer
    from appulse.imputation.regression import RegressionImputer
    from appulse.imputation.simple import EditingRules, MeanImputer, NearestImputer, PointImputer, ZeroFill
    from appulse.imputation.spatial import SpatialImputer
    from appulse.imputation.time_regression import TimeRegressionImputer
    from appulse.imputation.versions import SavedImputer
    from appulse.model.existence import Bursts
    from appulse.model.motion import Course, Straight, Velocity
    from appulse.model.stream import Stream
    from appulse.model.uncertainty import Ball, Exact, Gaussian, Incomplete, Position, Samples
    from appulse.windows.definitions import CountWindow, DeltaWindow, TimeWindow, TumblingWindow, UncertainCountWindow

version = "0.1.0"

_HOMES = {
    "appulse.api.aggregates": ("WindowAggregate", "window_aggregate"),
    "appulse.api.association": ("Assign", "Nearest", "assign", "nearest"),
    "appulse.api.batches": ("stream_batches",),
    "appulse.api.collecting": ("SampleCollector", "collect_samples"),
    "appulse.api.fences": ("FenceEvents", "fence_advice", "fence_events"),
    "appulse.api.joins": ("SimilarityJoin", "explain_pair", "self_join", "similarity_join"),
    "appulse.api.motion": ("Encounters", "encounters"),
    "appulse.api.mqtt": ("MqttReader", "mqtt_stream"),
    "appulse.api.outlying": ("Outliers", "outliers"),
    "appulse.api.planning": ("plan",),
    "appulse.api.queries": ("QueryMatch", "ask", "match_queries"),
    "appulse.api.readings": ("Phenomena", "SensorJoin", "phenomena", "sensor_join"),
    "appulse.api.replaying": ("replay",),
    "appulse.api.results": ("explain", "rejects"),
    "appulse.api.running": ("listen", "session", "start"),
    "appulse.api.streams": ("decode_messages", "discover_dependencies", "filter", "impute"),
    "appulse.engines.explain": ("Explanation",),
    "appulse.engines.options": ("Options",),
    "appulse.engines.planning": ("Plan",),
    "appulse.errors": (
        "AllRejected",
        "AppulseError",
        "BadArgument",
        "BadInput",
        "CappedWindow",
        "CheckpointError",
        "ExplodingOutput",
        "GrownFile",
        "JobError",
        "LateRows",
        "NotBuilt",
        "OutputLimit",
        "SessionError",
        "StateError",
        "StateLimit",
        "StorageError",
        "SwappedDimensions",
        "SwappedPlaces",
        "TiedFiles",
        "UnlikelyUnit",
    ),
    "appulse.imputation.choosing": ("AutoImputer",),
    "appulse.imputation.dependencies": ("DifferentialDependency",),
    "appulse.imputation.imputer": ("DependencyImputer",),
    "appulse.imputation.in_time": ("LastValueImputer", "SpeedImputer"),
    "appulse.imputation.interpolation": ("InterpolationImputer",),
    "appulse.imputation.regression": ("RegressionImputer",),
    "appulse.imputation.simple": ("EditingRules", "MeanImputer", "NearestImputer", "PointImputer", "ZeroFill"),
    "appulse.imputation.spatial": ("SpatialImputer",),
    "appulse.imputation.time_regression": ("TimeRegressionImputer",),
    "appulse.imputation.versions": ("SavedImputer",),
    "appulse.model.existence": ("Bursts",),
    "appulse.model.motion": ("Course", "Straight", "Velocity"),
    "appulse.model.stream": ("Stream",),
    "appulse.model.uncertainty": ("Ball", "Exact", "Gaussian", "Incomplete", "Position", "Samples"),
    "appulse.windows.definitions": (
        "CountWindow",
        "DeltaWindow",
        "TimeWindow",
        "TumblingWindow",
        "UncertainCountWindow",
    ),
}
#: Packages of more functions, as in `ap.lab.field`.
_ROOMS = ("lab",)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - by topic, as in the reference
    # Streams and windows
    "Stream",
    "TimeWindow",
    "CountWindow",
    "UncertainCountWindow",
    "DeltaWindow",
    "TumblingWindow",
    # Uncertainty models
    "Exact",
    "Samples",
    "Gaussian",
    "Ball",
    "Position",
    "Incomplete",
    "Bursts",
    # Joins
    "similarity_join",
    "self_join",
    "SimilarityJoin",
    # Association
    "nearest",
    "Nearest",
    "assign",
    "Assign",
    "outliers",
    "Outliers",
    # Motion
    "Straight",
    "Course",
    "Velocity",
    "encounters",
    "Encounters",
    # Fences
    "fence_advice",
    "fence_events",
    "FenceEvents",
    # Incomplete streams
    "impute",
    "DependencyImputer",
    "SavedImputer",
    "DifferentialDependency",
    "discover_dependencies",
    "AutoImputer",
    "RegressionImputer",
    "NearestImputer",
    "InterpolationImputer",
    "TimeRegressionImputer",
    "LastValueImputer",
    "SpeedImputer",
    "SpatialImputer",
    "EditingRules",
    "MeanImputer",
    "ZeroFill",
    "PointImputer",
    # Sensor networks
    "sensor_join",
    "SensorJoin",
    "phenomena",
    "Phenomena",
    "lab",
    # Standing queries
    "match_queries",
    "ask",
    "QueryMatch",
    # Operators that compose
    "filter",
    "decode_messages",
    "collect_samples",
    "SampleCollector",
    "window_aggregate",
    "WindowAggregate",
    # Results
    "rejects",
    "explain",
    "Explanation",
    "explain_pair",
    "start",
    "stream_batches",
    "replay",
    "listen",
    # Sensors' own protocol
    "MqttReader",
    "mqtt_stream",
    # Planning
    "plan",
    "Plan",
    # How a call is carried out
    "Options",
    "session",
    "version",
    # Errors
    "AllRejected",
    "AppulseError",
    "BadArgument",
    "BadInput",
    "CappedWindow",
    "CheckpointError",
    "ExplodingOutput",
    "GrownFile",
    "LateRows",
    "JobError",
    "NotBuilt",
    "OutputLimit",
    "SessionError",
    "StateError",
    "StateLimit",
    "StorageError",
    "SwappedDimensions",
    "SwappedPlaces",
    "TiedFiles",
    "UnlikelyUnit",
]


def load_ipython_extension(shell: Any) -> None:
    """Show tables, schemas and Spark frames as HTML in a notebook: ``%load_ext appulse``."""
    from appulse.report.notebook import register

    register(shell)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"appulse.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'appulse' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
