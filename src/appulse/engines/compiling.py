"""Say when machine code has to be compiled: what is at hand is loaded in no time, what is not takes a while."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from numba.core.event import Event, Listener, install_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["when_compiling"]


class _First(Listener):
    """Calls a function at the first kernel that is compiled."""

    def __init__(self, say: Callable[[], object]) -> None:
        self._say, self._said = say, Lock()

    def on_start(self, event: Event) -> None:  # noqa: ARG002 - Numba's own names
        if self._said.acquire(blocking=False):
            self._say()

    def on_end(self, event: Event) -> None:
        """Nothing is said then."""


@contextmanager
def when_compiling(say: Callable[[], object]) -> Iterator[None]:
    """Call ``say`` once, as soon as any thread compiles a kernel that is not at hand."""
    with install_listener("numba:compile", _First(say)):
        yield
