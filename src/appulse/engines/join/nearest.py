"""A call of `nearest`: a similarity join that keeps the best pairs of each left row."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

from appulse.arguments import one_of
from appulse.engines.join.call import resolve
from appulse.engines.schemas import refuse_bursts
from appulse.errors import BadArgument
from appulse.model.uncertainty import Incomplete
from appulse.operators.held_pairs import BY
from appulse.windows.definitions import TimeWindow, UncertainCountWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.join.call import JoinCall
    from appulse.engines.options import Options
    from appulse.model.stream import Stream
    from appulse.windows.definitions import Window

NearestBy: TypeAlias = Annotated[str, one_of(*BY)]
NearestHow: TypeAlias = Annotated[str, one_of("inner", "left")]
# What is less likely counts as impossible, where nothing else is asked for.
_POSSIBLE = 1e-9


def resolve_nearest(
    streams: Sequence[Stream],
    schemas: Sequence[pa.Schema],
    *,
    k: int,
    epsilon: float | Mapping[str, float] | None,
    window: Window,
    by: str,
    probability: float,
    how: str,
    on_reject: str,
    options: Options,
    whole: bool,
    metric: str = "euclidean",
) -> JoinCall:
    """Check a call against the columns there are; ``whole`` where all rows are there from the start."""
    for stream in streams:
        if isinstance(stream.value, Incomplete):
            raise BadArgument(f"nearest() needs whole values, and got {stream.value!r}. Fill holes by ap.impute first.")
    by_means = by == "distance" and probability == 0.0
    if isinstance(window, UncertainCountWindow) and by_means:
        raise BadArgument(
            "Rows of an uncertain window may be gone, so that a pair has a probability. Give probability= above 0, or "
            "by='probability'."
        )
    if by_means and not isinstance(epsilon, float | int | None):
        raise BadArgument(
            "Several epsilons do not say which distance is less. Give one epsilon, a probability= above 0, or "
            "by='probability'."
        )
    if epsilon is None:
        _check_unlimited(streams, window, by_means=by_means, whole=whole)
    refuse_bursts(streams, "nearest()")
    threshold = _POSSIBLE if probability == 0.0 else probability
    call = resolve(
        streams,
        schemas,
        epsilon=1.0 if epsilon is None else epsilon,
        probability=threshold,
        window=window,
        self_join=False,
        different=None,
        on_reject=on_reject,
        options=options,
        metric=metric,
    )
    plan = replace(call.plan, how=how, best=k, by=by, bounds=call.plan.bounds - {"lazy"})
    encodings = call.streams
    if by_means:
        # Of what is uncertain nothing but the mean is looked for.
        plan = replace(plan, threshold=0.0, quantile=0.0, bounds=plan.bounds - {"moment"})
        reach = 0.0 if plan.closed_form else None
        encodings = tuple(replace(one, quantile=0.0, gaussian_reach=reach) for one in encodings)
        if epsilon is None:
            plan = replace(plan, epsilon=math.inf)
    if not (whole and by_means and isinstance(window, TimeWindow)) or plan.withdrawn or plan.margins:
        encodings = tuple(replace(one, kept_apart=True) for one in encodings)
    return replace(call, plan=plan, streams=encodings, probability=probability)


def _check_unlimited(streams: Sequence[Stream], window: Window, *, by_means: bool, whole: bool) -> None:
    """Raise `BadArgument` where there has to be an epsilon."""
    if not whole:
        raise BadArgument("epsilon=None is for whole tables. Say how far away a row may be: epsilon=<number>.")
    if not by_means:
        raise BadArgument("epsilon=None goes with by='distance' and without probability=. Give an epsilon.")
    if not isinstance(window, TimeWindow):
        raise BadArgument(f"epsilon=None goes with a time window, and the window is {window!r}. Give an epsilon.")
    if any(stream.margin != 0.0 for stream in streams):
        raise BadArgument("Stream(margin=) is added to epsilon, and epsilon=None sets no limit. Give an epsilon.")
