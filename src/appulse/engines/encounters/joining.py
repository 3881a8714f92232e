"""A join of streams of which one at least moves: its call, checked. It compares readings at one instant."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import pyarrow as pa

from appulse.engines.encounters.call import PAIRS, EncounterCall, EncounterSettings, resolve_legs
from appulse.engines.meaning import of_call
from appulse.errors import BadArgument, NotBuilt
from appulse.model.stream import stream_names
from appulse.windows.definitions import TimeWindow
from appulse.windows.frames import meaning_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.engines.join.call import JoinSettings
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream

# What a join of things that move may be asked; anything else has its default.
_TAKEN = ("epsilon", "probability", "window", "on_reject", "options")


def moves(streams: Sequence[Stream]) -> bool:
    """Whether any of the streams does."""
    return any(stream.motion is not None for stream in streams)


@dataclass(frozen=True)
class MovingJoinCall(EncounterCall):
    """A checked join without its frames: travels to workers."""

    @property
    def lag(self) -> int | None:
        """The earlier row of a pair is older than the later one by a window, which waits for its leg."""
        return max(self.plan.windows or (0,)) + self.plan.makers.delay

    @property
    def answer_schema(self) -> pa.Schema:
        own = [("stream", pa.string()), *self.own]
        sides = [(f"{side}_{what}", kind) for side in ("left", "right") for what, kind in own]
        return pa.schema([*sides, ("distance", pa.float64()), ("probability", pa.float64()), *self.carried])

    def meaning(self) -> Meaning:
        names = [encoding.name for encoding in self.streams]
        lengths = dict(zip(names, self.plan.windows or (), strict=True))
        asked = self.asked | {"window": meaning_of(None, lengths)}
        return of_call("self_join" if self.plan.alone else "similarity_join", asked, {})


def resolve_moving(streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: JoinSettings) -> MovingJoinCall:
    """Check a call against the columns there are, and settle everything that follows from its arguments."""
    for own in fields(settings):
        value = getattr(settings, own.name)
        if own.name not in _TAKEN and value != own.default:
            raise NotBuilt(
                f"{own.name}={value!r} is not built for streams with motion=. Leave one of them out. See docs/index.md."
            )
    window = settings.window
    if not isinstance(window, TimeWindow):
        raise NotBuilt(
            f"{window!r} is not built for streams with motion=. Give a TimeWindow, or leave motion out. See "
            "docs/index.md."
        )
    if len(streams) > 2:
        raise NotBuilt(f"A join of {len(streams)} streams with motion= is not built: join two. See docs/index.md.")
    if any(stream.order != "time" for stream in streams):
        raise BadArgument("motion= goes by time, and a stream has order='arrival'. Leave one of them out.")
    windows = window.micros(stream_names(streams))
    asked = EncounterSettings(
        epsilon=settings.epsilon,
        probability=settings.probability,
        emit=PAIRS,
        on_reject=settings.on_reject,
        options=settings.options,
    )
    return resolve_legs(MovingJoinCall, streams, schemas, asked, windows)
