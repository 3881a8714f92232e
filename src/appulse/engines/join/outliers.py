"""A call of `outliers`: a similarity join that counts the partners of each row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from appulse.engines.carrying import refuse_repeated
from appulse.engines.join.call import JoinSettings, resolve
from appulse.engines.options import CallSettings
from appulse.engines.schemas import refuse_bursts, refuse_holes
from appulse.engines.thresholds import within_tolerance
from appulse.operators.partners import MOST_COUNTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.join.call import JoinCall
    from appulse.model.stream import Stream
    from appulse.windows.definitions import Window

#: Partners less likely than this are not counted: a million of them change a probability by 1e-6 at most.
LEAST = 1e-12


@dataclass(frozen=True, kw_only=True)
class OutlierSettings(CallSettings):
    """The arguments of `outliers`, beside its streams."""

    epsilon: float | Mapping[str, float]
    fewer_than: int
    probability: float
    window: Window


def resolve_outliers(
    streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: OutlierSettings, *, tiled: bool = True
) -> JoinCall:
    """Check a call against the columns there are; ``tiled``, rows have copies in several tiles."""
    refuse_bursts(streams, "outliers()")
    refuse_holes(streams, "outliers()")
    asked = JoinSettings(
        epsilon=settings.epsilon,
        probability=LEAST,
        window=settings.window,
        on_reject=settings.on_reject,
        options=settings.options,
    )
    call = resolve(streams, schemas, asked, pairs=False)
    bounds, certain = call.plan.bounds - {"lazy"}, within_tolerance(settings.probability)
    plan = replace(call.plan, fewer_than=settings.fewer_than, certain=certain, bounds=bounds)
    # Where pairs of a row meet only later, they have to know it from others with the same key and time.
    apart = tiled or plan.withdrawn or settings.fewer_than > MOST_COUNTED
    encodings = tuple(replace(one, kept_apart=apart) for one in call.streams)
    made = replace(call, plan=plan, streams=encodings, probability=settings.probability)
    refuse_repeated(made.answer_schema)
    return made
