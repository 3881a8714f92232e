"""Every exception appulse raises on purpose, in one tree.

    AppulseError
    ├── BadArgument     an argument of a call is wrong           (also a ValueError)
    ├── BadInput        rows are unusable and on_reject="fail"   (also a ValueError)
    ├── OutputLimit     a call makes more than max_output rows    (also a RuntimeError)
    ├── JobError        a job file is wrong                      (also a ValueError)
    ├── SessionError    the Spark session or Java lacks something (also a RuntimeError)
    ├── CheckpointError a checkpoint does not fit the call        (also a RuntimeError)
    ├── StateError      a state or block blob is unreadable       (also a RuntimeError)
    ├── StateLimit      a job would hold more rows than it may      (also a RuntimeError)
    ├── StorageError    a disk is full, a path not writable       (also an OSError)
    └── NotBuilt        part of the contract that does not stand yet (also a NotImplementedError)

Warnings beside it: AllRejected, CappedWindow, ExplodingOutput, GrownFile, LateRows, SwappedDimensions, SwappedPlaces,
TiedFiles, UnlikelyUnit.

A message says what failed, what was there, and what to do next.
"""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from inspect import currentframe
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

__all__ = [
    "AllRejected",
    "AppulseError",
    "BadArgument",
    "BadInput",
    "CappedWindow",
    "CheckpointError",
    "ExplodingOutput",
    "GrownFile",
    "JobError",
    "LateRows",
    "NotBuilt",
    "OutputLimit",
    "SessionError",
    "StateError",
    "StateLimit",
    "StorageError",
    "SwappedDimensions",
    "SwappedPlaces",
    "TiedFiles",
    "UnlikelyUnit",
    "bad_rows",
    "likely",
    "nearest",
    "report_capped",
    "report_exploding",
    "warn",
    "warn_exploding",
    "warn_grown",
    "warn_late",
    "warn_swapped",
]


_PACKAGE = __file__.removesuffix("errors.py")
_QUIET: ContextVar[bool] = ContextVar("no warnings", default=False)


class AppulseError(Exception):
    """The base class of all errors that appulse raises."""


class BadArgument(AppulseError, ValueError):
    """An argument of a call is wrong.

    The message names the argument, the value that was given, and what is allowed. Nothing was computed: correct the
    argument and call again.
    """


class BadInput(AppulseError, ValueError):
    """Rows cannot be used, and the call has ``on_reject="fail"``.

    Correct the rows, or use ``on_reject="collect"``, the default: they are then in `rejects` with their reasons.
    """


class ImpossibleBursts(BadInput):
    """Consecutive rows whose probabilities of existence do not allow the correlation of their stream.

    The message has both probabilities and the range that they allow. Lower ``Bursts(correlation=)``.
    """


class OutputLimit(AppulseError, RuntimeError):
    """A call, a push or a task would return more rows than ``Options(max_output=)`` allows.

    Use a smaller epsilon, a higher probability or a shorter window, or raise the limit.
    """


class JobError(AppulseError, ValueError):
    """A job file has an error, or its input is missing.

    The message names the file, the table and the key. ``appulse validate JOB.toml`` lists the errors that can be found
    before the job runs.
    """


class SessionError(AppulseError, RuntimeError):
    """The Spark session, or its Java, lacks something that appulse needs.

    The message names the setting or the package. ``appulse doctor`` checks the installation step by step.
    """


class CheckpointError(AppulseError, RuntimeError):
    """A checkpoint does not fit the job that would resume it, or is older than the job's output.

    Restore the job as it was, or start with a new checkpoint. `docs/semantics/running.md` says what
    may change between runs. An older copy continues once the files that the message names are removed.
    """


class StateError(AppulseError, RuntimeError):
    """State is corrupt, truncated or from another program, or a part of a checkpoint is missing.

    Restore the checkpoint from its newest copy, or start with a new one. appulse never continues from damaged state.
    """


class StateLimit(AppulseError, RuntimeError):
    """A job would hold more rows than ``max_state`` allows. The current micro-batch is not written.

    Shorten windows or lateness, or raise the limit and start again with the same checkpoint: no row is lost.
    """


class StorageError(AppulseError, OSError):
    """Something could not be written, because a disk is full, or because of permissions or an existing file.

    Free space or correct the path, then start again with the same checkpoint: no row is lost or doubled.
    """


class NotBuilt(AppulseError, NotImplementedError):
    """A combination of arguments that is not built yet.

    The message says what to do instead. `docs/index.md` lists all limits.
    """


@contextmanager
def no_warnings() -> Iterator[None]:
    """Warn of nothing, in this thread: rows come once more."""
    before = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(before)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of appulse that led here."""
    if _QUIET.get():
        return
    level, frame = 1, currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


class AllRejected(UserWarning):
    """All rows of a stream are rejects, so the call has no results of it. In process, for whole tables.

    ``ap.rejects(result)`` has the rows with their reasons.
    """


def warn_rejected(stream: str, rejects: pa.Table) -> None:
    """Warn of a stream of whose rows none is left."""
    reasons = reasons_listed(Counter(rejects["reason"].to_pylist()))
    warn(
        f"All {len(rejects):,} rows of stream {stream!r} are rejects: {reasons}. The first: {rejects['detail'][0]}. "
        "See ap.rejects(result).",
        AllRejected,
    )


def reasons_listed(reasons: Counter[str]) -> str:
    """Reasons of rejects, each with the number of rows, the commonest first."""
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())


class CappedWindow(UserWarning):
    """Rows left an uncertain window only because it reached its ``max_rows``.

    The window no longer has the requested confidence. Raise ``max_rows``, or lower the confidence.
    """


def report_capped(rows: int) -> None:
    """Warn where windows were cut, so that their confidence is not what was asked for."""
    if rows:
        warn(
            f"{rows} rows left an UncertainCountWindow for its max_rows alone: it no longer holds enough rows for its "
            "confidence. Raise max_rows, or lower the confidence.",
            CappedWindow,
        )


class ExplodingOutput(UserWarning):
    """A call is about to return or compare very many pairs.

    This is an estimate from a sample. First check the units of epsilon and of the window.
    """


_FEWER = "A smaller epsilon, a higher probability or a shorter window has fewer."


def report_exploding(answers: float, rows: int, fewer: str = _FEWER, hint: str = "") -> None:
    """Announce an output that is likely larger than anybody meant.

    ``fewer`` says what makes it smaller, ``hint`` what may be wrong.
    """
    warn_exploding(
        f"These {rows:,} rows will have about {answers:,.0f} answers, {answers / max(1, rows):,.0f} for each, by a "
        f"sample of their pairs. {fewer} {hint}".rstrip()
    )


class GrownFile(UserWarning):
    """A file of a source has grown since it was read. A file is read once: the added rows are not read.

    Write new rows to a new file. Begin its name with a dot until it is complete: such files are not read.
    """


def warn_grown(file: str) -> None:
    """Warn of a file that was read and has more in it now."""
    warn(f"{file} has grown since it was read; a file is read once. Write new rows to a new file.", GrownFile)


class LateRows(UserWarning):
    """More than half of the rows that came were late.

    Either a clock is ahead (``Stream(ahead=)``), or rows arrive later than ``Stream(lateness=)`` allows.
    """


def warn_late(late: int, rows: int, because: str) -> None:
    """Warn that most rows were late, and why."""
    warn(
        f"{late:,} of the last {rows:,} rows came late and are rejects. {because} If that clock is wrong, give "
        "Stream(ahead=) less; if rows do come this late, give Stream(lateness=) more.",
        LateRows,
    )


class SwappedDimensions(UserWarning):
    """Two streams of a call name the same dimension, at different places.

    Dimensions are matched by position, not by name. Name them in the same order in both streams.
    """


class SwappedPlaces(UserWarning):
    """No row lies in a region, and some would if latitude and longitude were swapped.

    Check `Position(lat, lon)`, and that coordinates of regions are longitude, latitude.
    """


def warn_swapped(would: int) -> None:
    """Warn that ``would`` of the first rows lie in a region if latitude and longitude are swapped, and none else."""
    warn(
        f"None of the first rows lies in a region, and {would:,} would with latitude and longitude swapped. "
        "Check ap.Position(lat, lon), and that coordinates of regions are longitude, latitude.",
        SwappedPlaces,
    )


class TiedFiles(UserWarning):
    """Files of a source have the same date, so Spark may read them in any order, some files at a time.

    Rows of files that are read later can then be late. Raise ``max_files_per_trigger`` or ``lateness``, or set the
    dates of the files in order.
    """


def warn_tied(files: int, place: str, source: str, most: int) -> None:
    """Warn of files that are read in the order of their dates, and have the dates of others."""
    warn(
        f"{files:,} files of source {source!r} have the date of another file of {place}. Spark reads files of one date "
        f"in the order of the folder, not of their names: with max_files_per_trigger = {most} rows may come late. "
        "Raise max_files_per_trigger, give the files dates in their order (touch -d), or give more lateness.",
        TiedFiles,
    )


class UnlikelyUnit(UserWarning):
    """The first times of a stream are all after the year 5000, and would be between 2000 and 2100 in a smaller unit.

    Numbers are times in ``Stream(unit=)``, by default seconds. Windows and lateness are wrong by the same factor. In
    process only.
    """


def warn_unit(stream: str, unit: str, likelier: str, day: object) -> None:
    """Warn that times of a stream are likely in another unit, in which the first is of a day."""
    warn(
        f"The times of stream {stream!r} lie beyond the year 5000 in unit={unit!r}; in unit={likelier!r} the first is "
        f"of {day}. Give the stream unit={likelier!r}, or filter this warning if the times are right.",
        UnlikelyUnit,
    )


def warn_exploding(text: str) -> None:
    """Warn of an output, or of work, that is likely larger than anybody meant."""
    warn(text, ExplodingOutput)


def bad_rows(rejects: pa.Table) -> BadInput:
    """The error for rows that cannot be used where the call asked to fail."""
    first = {name: shown_scalar(rejects[name][0]) for name in ("stream", "key", "time", "reason", "detail")}
    return BadInput(
        f"{len(rejects)} rows of stream {first['stream']!r} cannot be used; the first, key {first['key']!r} at "
        f'{first["time"]}: {first["reason"]} ({first["detail"]}). Repair them, or use on_reject="collect".'
    )


def shown_scalar(scalar: pa.Scalar) -> object:
    """A value of a column for messages; times that Python has no object for as a number and their type."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return f"{getattr(scalar, 'value', 'a value')} ({scalar.type})"


def nearest(wrong: str, known: Iterable[str]) -> str:
    """A hint such as ``" Did you mean 'epsilon'?"`` for a misspelt name, or the list of known names."""
    known = sorted(known)
    return likely(wrong, known) or f" Known: {', '.join(known) or 'none'}."


def likely(wrong: str, known: Iterable[str]) -> str:
    """The hint alone, or nothing: for a message that lists what is known."""
    close = get_close_matches(wrong, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
