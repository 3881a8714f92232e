"""Say when machine code has to be compiled: what is at hand is loaded in no time, what is not takes a while."""

from __future__ import annotations

import logging
from functools import cache
from threading import Lock
from typing import Any

from numba.core import event as numba_event
from numba.core.event import Event, Listener

__all__ = ["announce_compiling"]

_events: Any = numba_event  # of which not all has types
_LOG = logging.getLogger("appulse")
_TEXT = "The first rows wait for machine code, which is compiled once. `appulse warm` does it beforehand."


class _First(Listener):
    """Logs a line at the first kernel that is compiled."""

    def __init__(self) -> None:
        self._said = Lock()

    def on_start(self, event: Event) -> None:  # noqa: ARG002 - Numba's own names
        if self._said.acquire(blocking=False):
            _LOG.warning(_TEXT)

    def on_end(self, event: Event) -> None:
        """Nothing is said then."""


@cache
def announce_compiling() -> None:
    """Have this process log a line, once, as soon as any thread compiles a kernel that is not at hand.

    It is a warning, since such a call may take minutes and others are not shown unless asked for.
    """
    _events.register("numba:compile", _First())
