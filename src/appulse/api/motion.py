"""Encounters of moving things: by call, and by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from appulse.api.by_hand import Bare, ByHand
from appulse.api.calls import settings_of
from appulse.api.results import Framed
from appulse.api.survivors import answers_over_survivors
from appulse.arguments import OnReject, Probability, checked
from appulse.engines.encounters.call import EmitEncounters, EncounterSettings, resolve_encounters
from appulse.engines.options import Options
from appulse.engines.thresholds import Epsilon, warn_swapped_dimensions
from appulse.errors import BadArgument
from appulse.model.stream import Result
from appulse.model.times import Duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.encounters.bucket import LocalEncounters
    from appulse.model.stream import Stream


@checked
def encounters(
    left: Framed[Result],
    right: Framed[Result] | None = None,
    *,
    epsilon: Epsilon,
    probability: Probability,
    gap: Duration = 0,
    min_seconds: Duration = 0,
    emit: EmitEncounters = "closed",
    expected_seconds: bool = False,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """When moving things come within ``epsilon`` of each other, with at least ``probability``.

    The ``motion`` of a stream turns its readings into legs. Two legs that overlap in time come close if their things
    are within ``epsilon`` at any instant of the overlap. A leg has the error of its first reading, constant along the
    leg. An encounter is a run of such pairs of legs of two keys.

    Arguments:
    * ``left, right``: streams with ``motion``. With ``right=None`` things of one stream are compared with each other.
    * ``epsilon``: the greatest distance, in the unit of the coordinates, of a `Position` in metres. With altitudes it
      may be ``{"horizontal": 9260, "vertical": 300}``, for other values one per group of dimensions, as in ``{("x",
      "y"): 50, "z": 10}``: all must hold at the same instant.
    * ``probability``: the threshold for the probability that two legs come close, in (0, 1].
    * ``gap``: the longest time between the end of one overlap and the start of the next in one encounter, in seconds or
      as a duration (text, a timedelta).
    * ``min_seconds``: drops encounters whose mean paths are within ``epsilon`` for less than this duration.
    * ``emit``: ``"closed"`` reports an encounter once no later reading can extend it. ``"changes"`` also reports its
      beginning, and adds ``change``: +1 at the first legs, with the figures so far, -1 when it is final. ``"legs"``
      reports each pair of legs.
    * ``expected_seconds``: adds the column ``expected_seconds``: how long the two are expected to be within
      ``epsilon`` in the overlaps, given their errors.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: speed and output size; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns ``left_key,
    right_key, start, end, closest_time, closest_distance, seconds_within, probability, legs``: ``start`` and ``end`` of
    the overlaps, ``closest_*`` and ``seconds_within`` of the mean paths. ``probability`` is the highest of any two
    legs, a lower bound of the probability that the two met. ``emit="legs"`` has ``left_key, left_time, right_key,
    right_time, overlap_start, overlap_end, closest_time, closest_distance, probability``, with the times of the
    readings that start the legs.

    Things at a `Position` move along geodesics. They are compared in the azimuthal equidistant plane at the mean of the
    ends of the overlap, or, for legs beyond 100 km, of each part of it. Of several readings with the same key and time
    one is kept; the others are rejects ``same time``.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for combinations that are not built yet.

    >>> fixes = {"id": ["a", "a", "b", "b"], "t": [0, 60, 5, 58]}
    >>> fixes |= {"x": [0.0, 600.0, 600.0, 0.0], "y": [0.0, 0.0, 30.0, 30.0]}
    >>> value, motion = ap.Gaussian("x", "y", sigma=10), ap.Straight(max_gap="5 minutes")
    >>> stream = ap.Stream(pa.table(fixes), key="id", time="t", value=value, motion=motion)
    >>> met = ap.encounters(stream, epsilon=50, probability=0.5)
    >>> {name: round(met[name][0].as_py(), 2) for name in ("closest_distance", "seconds_within", "probability")}
    {'closest_distance': 30.0, 'seconds_within': 3.75, 'probability': 0.92}
    """
    settings = settings_of("encounters", locals())

    def on_spark(streams: Sequence[Stream]) -> Any:
        from appulse.engines.spark.encounters.call import spark_legs

        asked = EncounterSettings(**settings)
        return spark_legs(streams, partial(resolve_encounters, settings=asked), asked.options)

    streams = (left,) if right is None else (left, right)
    warn_swapped_dimensions(streams)
    return answers_over_survivors(streams, "left", settings, _engine, on_spark)


def _engine(streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: Mapping[str, Any]) -> LocalEncounters:
    from appulse.engines.encounters.bucket import LocalEncounters

    return LocalEncounters(resolve_encounters(streams, schemas, EncounterSettings(**settings)))


@checked
class Encounters(ByHand["LocalEncounters"]):
    """`encounters` without Spark, push by push: push readings as they arrive, and get the encounters they complete.

    Streams have ``frame=None``; other arguments are as in `encounters`.

    >>> motion = ap.Velocity("vx", horizon="10 seconds")
    >>> stream = ap.Stream(None, key="id", time="t", value="x", motion=motion)
    >>> call = ap.Encounters(stream, epsilon=1, probability=1)
    >>> call.push(pa.table({"id": ["a", "b"], "t": [0, 0], "x": [0.0, 10.0], "vx": [1.0, -1.0]})).num_rows
    0
    >>> call.drain().select(["left_key", "right_key", "closest_time"]).to_pylist()
    [{'left_key': 'a', 'right_key': 'b', 'closest_time': 5.0}]
    """

    _engine_of = staticmethod(_engine)
    _pairs = True
    _withdraws_before = True

    def __init__(
        self,
        *streams: Bare,
        epsilon: Epsilon,
        probability: Probability,
        gap: Duration = 0,
        min_seconds: Duration = 0,
        emit: EmitEncounters = "closed",
        expected_seconds: bool = False,
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        if len(streams) > 2:
            raise BadArgument(f"Encounters() got {len(streams)} streams. Give one, or two.")
        self._settings = settings_of("encounters", locals())
        super().__init__(streams, "left")
