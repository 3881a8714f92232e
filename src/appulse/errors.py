"""Every exception appulse raises on purpose, in one tree.

    AppulseError
    ├── BadArgument     an argument of a call is wrong           (also a ValueError)
    ├── BadInput        rows are unusable and on_reject="fail"   (also a ValueError)
    ├── OutputLimit     a call makes more than max_output rows    (also a RuntimeError)
    ├── JobError        a job file is wrong                      (also a ValueError)
    ├── SessionError    the Spark session or Java lacks something (also a RuntimeError)
    ├── CheckpointError a checkpoint does not fit the call        (also a RuntimeError)
    ├── StateError      a state or block blob is unreadable       (also a RuntimeError)
    ├── StorageError    a disk is full, a path not writable       (also an OSError)
    └── NotBuilt        part of the contract that does not stand yet (also a NotImplementedError)

Warnings beside it: CappedWindow, ExplodingOutput, LateRows.

A message says what failed, what was there, and what to do next.
"""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "AppulseError",
    "BadArgument",
    "BadInput",
    "CappedWindow",
    "CheckpointError",
    "ExplodingOutput",
    "JobError",
    "LateRows",
    "NotBuilt",
    "OutputLimit",
    "SessionError",
    "StateError",
    "StorageError",
    "bad_rows",
    "nearest",
    "tell_capped",
    "tell_exploding",
    "warn_exploding",
    "warn_late",
]


class AppulseError(Exception):
    """The root: catch this to catch everything appulse raises on purpose."""


class BadArgument(AppulseError, ValueError):
    """An argument of a call is wrong."""


class BadInput(AppulseError, ValueError):
    """Rows are unusable and the call was made with ``on_reject="fail"``."""


class ImpossibleBursts(BadInput):
    """Consecutive rows whose probabilities of existence do not allow the correlation of their stream."""


class OutputLimit(AppulseError, RuntimeError):
    """A call, a push or a task would put out more rows than ``Options(max_output=)`` allows."""


class JobError(AppulseError, ValueError):
    """A job file is wrong."""


class SessionError(AppulseError, RuntimeError):
    """The Spark session, or the Java under it, lacks something appulse needs."""


class CheckpointError(AppulseError, RuntimeError):
    """A checkpoint does not fit the call that would resume it."""


class StateError(AppulseError, RuntimeError):
    """A state or block blob is corrupt, truncated or foreign."""


class StorageError(AppulseError, OSError):
    """Something could not be written: a disk is full, a path has the wrong rights or a file in its way."""


class NotBuilt(AppulseError, NotImplementedError):
    """Part of the documented contract that does not stand yet."""


class CappedWindow(UserWarning):
    """Rows left an uncertain window only because it had grown to its ``max_rows``."""


def tell_capped(rows: int) -> None:
    """Warn where windows were cut, so that their confidence is not what was asked for."""
    if rows:
        warnings.warn(
            f"{rows} rows left an UncertainCountWindow for its max_rows alone: it no longer holds enough rows for its "
            "confidence. Raise max_rows, or lower the confidence.",
            CappedWindow,
            stacklevel=3,
        )


class ExplodingOutput(UserWarning):
    """A call is about to put out, or to compare, far more than anybody is likely to want."""


_FEWER = "A smaller epsilon, a higher probability or a shorter window has fewer."


def tell_exploding(answers: float, rows: int, fewer: str = _FEWER, hint: str = "") -> None:
    """Announce an output that is likely larger than anybody meant.

    ``fewer`` says what makes it smaller, ``hint`` what may be wrong.
    """
    warn_exploding(
        f"These {rows:,} rows will have about {answers:,.0f} answers, {answers / max(1, rows):,.0f} for each, by a "
        f"sample of their pairs. {fewer} {hint}".rstrip()
    )


class LateRows(UserWarning):
    """More than half of the rows that came were late."""


def warn_late(late: int, rows: int, because: str) -> None:
    """Warn that most rows were late, and why."""
    warnings.warn(
        f"{late:,} of the last {rows:,} rows came late and are rejects. {because} If that clock is wrong, give "
        "Stream(ahead=) less; if rows do come this late, give Stream(lateness=) more.",
        LateRows,
        stacklevel=3,
    )


def warn_exploding(text: str) -> None:
    """Warn of an output, or of work, that is likely larger than anybody meant."""
    warnings.warn(text, ExplodingOutput, stacklevel=4)


def bad_rows(count: int, first: Mapping[str, object]) -> BadInput:
    """The error for rows that cannot be used where the call asked to fail; ``first`` is the first reject."""
    return BadInput(
        f"{count} rows of stream {first['stream']!r} cannot be used; the first, key {first['key']!r} at "
        f'{first["time"]}: {first["reason"]} ({first["detail"]}). Repair them, or use on_reject="collect".'
    )


def nearest(wrong: str, known: Iterable[str]) -> str:
    """A hint such as ``" Did you mean 'epsilon'?"`` for a misspelt name, or the list of known names."""
    known = sorted(known)
    close = get_close_matches(wrong, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known) or 'none'}."
