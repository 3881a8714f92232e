"""The public functions: check the arguments, pick the engine."""

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
from appulse.api.streams import decode_messages, discover_dependencies, filter, impute  # noqa: A004 - as the contract

__all__ = [
    "Assign",
    "Encounters",
    "FenceEvents",
    "MqttReader",
    "Nearest",
    "Outliers",
    "Phenomena",
    "QueryMatch",
    "SampleCollector",
    "SensorJoin",
    "SimilarityJoin",
    "WindowAggregate",
    "ask",
    "assign",
    "collect_samples",
    "decode_messages",
    "discover_dependencies",
    "encounters",
    "explain",
    "explain_pair",
    "fence_advice",
    "fence_events",
    "filter",
    "impute",
    "listen",
    "match_queries",
    "mqtt_stream",
    "nearest",
    "outliers",
    "phenomena",
    "plan",
    "rejects",
    "replay",
    "self_join",
    "sensor_join",
    "session",
    "similarity_join",
    "start",
    "stream_batches",
    "window_aggregate",
]
