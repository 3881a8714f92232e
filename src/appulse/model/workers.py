"""Threads that carry out the parts of a call."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Workers:
    """So many ``threads``; what they give does not depend on how many there are, as long as parts do not."""

    threads: int = 1

    def map(self, do: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """What ``do`` makes of each part, in the order of the parts; the first that raises stops the rest."""
        many = min(self.threads, len(parts))
        if many < 2:
            return [do(part) for part in parts]
        waiting, made, failed = deque(enumerate(parts)), dict[int, R](), dict[int, BaseException]()

        def work() -> None:
            with suppress(IndexError):  # another thread took the last one
                while waiting and not failed:
                    i, part = waiting.popleft()
                    try:
                        made[i] = do(part)
                    except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                        failed[i] = error

        # Made for each call, as threads do not outlive a fork. The caller's is one of them: to start one takes longer
        # than some parts do.
        others = [Thread(target=work) for _ in range(many - 1)]
        for one in others:
            one.start()
        try:
            work()
            for one in others:
                one.join()
        finally:
            waiting.clear()
        if failed:
            raise failed[min(failed)]
        return [made[i] for i in range(len(parts))]
