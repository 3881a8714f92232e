"""A call of `assign`, and its bucket: rows wait until their block has ended, and are then given a partner each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from appulse.arguments import Kind, Unfit, one_of
from appulse.engines.join.call import JoinCall, JoinSettings, Observed, resolve, to_table
from appulse.engines.local import Local
from appulse.engines.meaning import of_call, of_stream
from appulse.engines.options import CallSettings
from appulse.engines.schemas import refuse_bursts, refuse_holes
from appulse.engines.waiting import WaitingBucket
from appulse.errors import BadArgument
from appulse.model.encode import infer_dimensions
from appulse.model.meaning import real, seconds
from appulse.model.objects import Objects
from appulse.model.times import duration
from appulse.model.uncertainty import in_closed_form, is_certain
from appulse.operators.assignment import BY, METHODS
from appulse.operators.blocks import ALWAYS, BlockPlan, partners
from appulse.windows.definitions import TimeWindow, TumblingWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream

TICK: Literal["tick"] = "tick"


def _block(value: Any) -> TumblingWindow | str:
    if value == TICK:
        return TICK
    if isinstance(value, TumblingWindow) and not isinstance(value.length, int):
        return value
    raise Unfit


#: Of which rows one is assigned to another.
Blocks: TypeAlias = Annotated[
    TumblingWindow | str, Kind("'tick', or blocks of time such as ap.TumblingWindow('10 seconds')", _block)
]
AssignBy: TypeAlias = Annotated[str, one_of(*BY)]
AssignMethod: TypeAlias = Annotated[str, one_of(*METHODS)]


@dataclass(frozen=True)
class AssignCall(JoinCall):
    """A checked call of `assign`."""

    blocks: BlockPlan = field(kw_only=True)

    @property
    def holds_back(self) -> bool:
        """Rows wait for the end of their block."""
        return True

    @property
    def lag(self) -> int | None:
        """Rows of a block come out when it ends."""
        return self.blocks.span

    @property
    def grouped(self) -> bool:
        """Blocks are apart, whether or not there are groups."""
        return True

    def meaning(self) -> Meaning:
        of_join = super().meaning()
        waits = zip(self.encodings, self.lateness, self.idle_after, strict=True)
        own = {
            "streams": [of_stream(*one) for one in waits],
            "window": TICK if self.blocks.span == 0 else seconds(self.blocks.span),
            "by": self.blocks.by,
            "method": "greedy" if self.blocks.greedy else "optimal",
            "density": None if self.blocks.density is None else real(self.blocks.density),
        }
        same = {name: of_join[name] for name in ("epsilon", "probability", "types")}
        return of_call("assign", same | own | {"how": self.plan.how}, _DEFAULTS)


_DEFAULTS: Meaning = {"by": "likelihood", "method": "optimal", "density": None, "how": "inner"}


@dataclass(frozen=True, kw_only=True)
class AssignSettings(CallSettings):
    """The arguments of `assign`, beside its streams."""

    epsilon: float | Mapping[str, float]
    probability: float
    window: TumblingWindow | str
    by: str = "likelihood"
    method: str = "optimal"
    density: float | None = None
    how: str = "inner"


def resolve_assign(streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: AssignSettings) -> AssignCall:
    """Check a call against the columns there are."""
    refuse_bursts(streams, "assign()")
    refuse_holes(streams, "assign()")
    for stream in streams:
        if stream.order != "time":
            raise BadArgument(f"Blocks go by time, and a stream has order={stream.order!r}. Leave it out.")
    _check_gains(streams, settings)
    by, window, options = settings.by, settings.window, settings.options
    asked = JoinSettings(
        epsilon=settings.epsilon,
        probability=settings.probability,
        window=TimeWindow(1),
        likelihood=by == "likelihood",
        on_reject=settings.on_reject,
        options=options,
    )
    call = resolve(streams, schemas, asked)
    plan = replace(call.plan, windows=(ALWAYS, ALWAYS), grouped=True, assigned=True, withdrawn=False, how=settings.how)
    span = duration(window.length, "TumblingWindow") if isinstance(window, TumblingWindow) else 0
    return AssignCall(
        plan,
        call.streams,
        options,
        probability=settings.probability,
        dependent=call.dependent,
        blocks=BlockPlan(plan, span, by, settings.density, settings.method == "greedy", options.max_component),
    ).over(streams, settings)


def _check_gains(streams: Sequence[Stream], settings: AssignSettings) -> None:
    """Raise `BadArgument` where pairs would gain nothing."""
    by, density = settings.by, settings.density
    if by != "likelihood":
        if density is not None:
            raise BadArgument(f"density={density:g} is that of by='likelihood', and by={by!r}. Leave it out.")
        if by == "distance" and not isinstance(settings.epsilon, float | int):
            raise BadArgument(
                "Several epsilons do not say which distance is less. Give by='likelihood' or 'probability'."
            )
        return
    models = [stream.value for stream in streams]
    if not all(map(in_closed_form, models)) or all(map(is_certain, models)):
        raise BadArgument(
            "by='likelihood' takes normal errors: ap.Gaussian, with one sigma or in up to three dimensions, or "
            "ap.Position with sigma= or ellipse=, and exact rows beside them. Give errors, or by='probability' or "
            "by='distance'."
        )


class AssignBucket(WaitingBucket):
    """The rows of some blocks."""

    call: AssignCall

    @property
    def due(self) -> int | None:
        """The end of the first block."""
        first, span = super().due, self.call.blocks.span
        return first if first is None or span == 0 else (first // span + 1) * span - 1

    def answer(self, *, ended: bool) -> list[pa.Table]:
        """The partners of rows whose blocks have ended."""
        found = partners(self.call.blocks, streams, self.counts) if (streams := self._release(ended=ended)) else None
        if found is None:
            return []
        self.output.add(len(found))
        # The answers are counted by those who take them.
        del self.counts["answers"]
        return [to_table(found, self.call)]

    def _release(self, *, ended: bool) -> list[Objects]:
        before = None if ended else self.call.blocks.first_open(self.complete)
        parts = [one.release(before) for one in self.waiting]
        some = next((part for several in parts for part in several), None)
        if some is None:
            return []
        return [Objects.concat(several) if several else some.slice(0, 0) for several in parts]

    def again(self, numbers: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Let go of the same blocks."""
        self._release(ended=False)


class LocalAssign(Local[Objects]):
    """One partner each in process, push by push."""

    bucket: AssignBucket

    def __init__(self, call: AssignCall) -> None:
        super().__init__(AssignBucket(call))
        self._counts: dict[str, int] = {}

    def _advance(self, ended: int | None) -> pa.Table:
        found = super()._advance(ended)
        for name, count in self.bucket.counts.items():
            known = self._counts.get(name, 0)
            self._counts[name] = max(known, count) if name == "largest component" else known + count
        return found

    def observed(self) -> AssignCall:
        """The call, with what it did so far."""
        return replace(self.bucket.call, observed=Observed(self._counts, (), None))

    def _admit(self, tables: Mapping[str, pa.Table]) -> None:
        call: AssignCall = self.bucket.call
        if call.encodings[0].dimensions is None:
            known = (infer_dimensions(tables[one.name], one.model) for one in call.encodings if one.name in tables)
            d = next((d for d in known if d is not None), None)
            self.bucket.call = call if d is None else replace(call, streams=call.with_dimensions(d).streams)
        super()._admit(tables)
