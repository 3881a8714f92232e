"""What a source of a resident job is: it gives rows of streams as they come, and can go on behind any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

__all__ = ["Grows", "Source", "Taken", "Unreadable"]


class Unreadable(NamedTuple):
    """What came and is no row: it becomes a reject with the reason, what is wrong with it, and the text itself."""

    reason: str
    detail: str
    text: str


class Grows(NamedTuple):
    """An offset with a set that grows, of which a checkpoint keeps what is new alone.

    ``about`` is plain JSON. ``entries`` gives names with values: all of the set, or, with False, what has come since
    the call before; the value None takes a name out. A source begins with ``about`` and the set, as ``names``.
    """

    about: Mapping[str, Any]
    entries: Callable[[bool], Sequence[tuple[str, Any]]]


class Taken(NamedTuple):
    """Rows of a stream, and an offset, plain JSON or `Grows`: a source that begins with it goes on behind them."""

    stream: str
    rows: pa.Table
    offset: Any
    unreadable: Sequence[Unreadable] = ()


class Source(Protocol):
    """Rows of one stream or several.

    A job calls `begin` once, then `take` again and again from one thread, and `settle` when rows are safe: their
    answers are written and the state is saved. Rows that are not settled may be asked for again, after a crash, by
    `begin` with the offsets of the last ones that were: the same rows have to come then, in the same order.
    """

    @property
    def streams(self) -> Sequence[str]:
        """The names of its streams."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        ...

    @property
    def pending(self) -> bool:
        """Whether more comes by itself, with nobody adding anything."""
        ...

    def begin(self, offsets: Mapping[str, Any], *, once: bool = False) -> None:
        """Go on behind the offset of each stream; of streams without one from the beginning.

        ``once`` is whether the job ends with what is there now.
        """
        ...

    def take(self, wait: float) -> Sequence[Taken]:
        """What has come; where nothing has, what comes within ``wait`` seconds, if anything."""
        ...

    def settle(self, offsets: Mapping[str, Any]) -> None:
        """Rows up to these offsets are safe, and are never asked for again."""
        ...

    def close(self) -> None:
        """The job has ended."""
        ...
