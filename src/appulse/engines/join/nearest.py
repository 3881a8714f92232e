"""A call of `nearest`: a similarity join that keeps the best pairs of each left row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

from appulse.arguments import one_of
from appulse.engines.join.call import JoinSettings, resolve
from appulse.engines.options import CallSettings
from appulse.engines.schemas import refuse_bursts, refuse_holes
from appulse.errors import BadArgument
from appulse.operators.held_pairs import BY
from appulse.windows.definitions import TimeWindow, UncertainCountWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.join.call import JoinCall
    from appulse.model.stream import Stream
    from appulse.windows.definitions import Window

NearestBy: TypeAlias = Annotated[str, one_of(*BY)]
NearestHow: TypeAlias = Annotated[str, one_of("inner", "left")]
# What is less likely counts as impossible, where nothing else is asked for.
_POSSIBLE = 1e-9


@dataclass(frozen=True, kw_only=True)
class NearestSettings(CallSettings):
    """The arguments of `nearest`, beside its streams."""

    k: int = 1
    epsilon: float | Mapping[str, float] | None
    window: Window
    by: str = "distance"
    probability: float = 0.0
    how: str = "inner"
    metric: str = "euclidean"

    @property
    def by_means(self) -> bool:
        """Whether nothing but the means of rows is looked at."""
        return self.by == "distance" and self.probability == 0.0

    @property
    def of_join(self) -> JoinSettings:
        """Those of the join that finds the pairs."""
        return JoinSettings(
            epsilon=1.0 if self.epsilon is None else self.epsilon,
            probability=_POSSIBLE if self.probability == 0.0 else self.probability,
            window=self.window,
            metric=self.metric,
            on_reject=self.on_reject,
            options=self.options,
        )


def resolve_nearest(
    streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: NearestSettings, *, whole: bool
) -> JoinCall:
    """Check a call against the columns there are; ``whole`` where all rows are there from the start."""
    refuse_holes(streams, "nearest()")
    epsilon, window, by_means = settings.epsilon, settings.window, settings.by_means
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
    call = resolve(streams, schemas, settings.of_join)
    bounds = call.plan.bounds - {"lazy"}
    plan = replace(call.plan, how=settings.how, best=settings.k, by=settings.by, bounds=bounds)
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
    return replace(call, plan=plan, streams=encodings, probability=settings.probability)


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
