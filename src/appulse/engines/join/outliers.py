"""A call of `outliers`: a similarity join that counts the partners of each row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from appulse.engines.join.call import resolve
from appulse.engines.schemas import refuse_bursts
from appulse.engines.thresholds import within_tolerance
from appulse.errors import BadArgument
from appulse.model.uncertainty import Incomplete
from appulse.operators.partners import MOST_COUNTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.join.call import JoinCall
    from appulse.engines.options import Options
    from appulse.model.stream import Stream
    from appulse.windows.definitions import Window

#: Partners less likely than this are not counted: a million of them change a probability by 1e-6 at most.
LEAST = 1e-12


def resolve_outliers(
    streams: Sequence[Stream],
    schemas: Sequence[pa.Schema],
    *,
    epsilon: float | Mapping[str, float],
    fewer_than: int,
    probability: float,
    window: Window,
    on_reject: str,
    options: Options,
    tiled: bool = True,
) -> JoinCall:
    """Check a call against the columns there are; ``tiled``, rows have copies in several tiles."""
    refuse_bursts(streams, "outliers()")
    for stream in streams:
        if isinstance(stream.value, Incomplete):
            raise BadArgument(
                f"outliers() needs whole values, and got {stream.value!r}. Fill holes by ap.impute first."
            )
    call = resolve(
        streams,
        schemas,
        epsilon=epsilon,
        probability=LEAST,
        window=window,
        self_join=len(streams) == 1,
        different=None,
        on_reject=on_reject,
        options=options,
    )
    bounds = call.plan.bounds - {"lazy"}
    plan = replace(call.plan, fewer_than=fewer_than, certain=within_tolerance(probability), bounds=bounds)
    # Where pairs of a row meet only later, they have to know it from others with the same key and time.
    apart = tiled or plan.withdrawn or fewer_than > MOST_COUNTED
    encodings = tuple(replace(one, kept_apart=apart) for one in call.streams)
    return replace(call, plan=plan, streams=encodings, probability=probability)
