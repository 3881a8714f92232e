"""What stands behind results, found by a token that travels with them and with what is made of them."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from appulse.engines.base import Call

#: So many results are known by what was made of them, after they themselves are gone; fewer if their rejects are large.
MOST_RECENT, MOST_BYTES = 64, 1 << 25
# Of the columns that Arrow filters by an expression, each piece becomes pieces of at most so many rows.
_PIECE = 1 << 15
_PREFIX, _METRICS = "appulse_result_", "appulse "
# Of the columns of tables: unlike that of schemas, their metadata survives a renaming.
_FIELD = b"appulse.result"

Kept = TypeVar("Kept")


class Behind(Generic[Kept]):
    """What is kept of results: while they live, and of the latest beyond that."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._latest: deque[tuple[Kept, int]] = deque()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, token: str, result: Any, kept: Kept, nbytes: int = 0) -> None:
        """Keep this, of so many bytes, of a result."""
        self._known[token] = kept
        weakref.finalize(result, _let_go, kept).atexit = False
        self._latest.append((kept, nbytes))
        self._nbytes += nbytes
        while len(self._latest) > MOST_RECENT or (self._nbytes > MOST_BYTES and len(self._latest) > 1):
            self._nbytes -= self._latest.popleft()[1]

    def find(self, token: str) -> Kept | None:
        """What is kept of the result with this token; None: it is gone, or of another process."""
        return self._known.get(token)


def _let_go(kept: Any) -> None:
    """A result is gone. Until then the finalizer holds what is kept of it."""


def metrics_name(number: int) -> str:
    """The name of a call's metrics among those of its query."""
    return f"{_METRICS}{number}"


def names_of_metrics(names: Iterable[str]) -> list[str]:
    """The names of calls' metrics among all, in the order of the calls."""
    numbers = [name.removeprefix(_METRICS) for name in names if name.startswith(_METRICS)]
    return [metrics_name(number) for number in sorted(int(number) for number in numbers if number.isdigit())]


def new_token() -> str:
    """One that no result of any process has."""
    return f"{_PREFIX}{uuid4().hex}"


def is_token(name: str) -> bool:
    """Whether this is one."""
    return name.startswith(_PREFIX)


@dataclass(frozen=True)
class TableResult:
    """What stands behind a table."""

    rejected: pa.Table
    call: Call[Any]
    rows: int
    pieces: int  # of each column at most, and of what a filter makes of it

    @classmethod
    def of(cls, table: pa.Table, rejected: pa.Table, call: Call[Any]) -> TableResult:
        """What stands behind this table."""
        lengths = [[len(piece) for piece in column.chunks] for column in table.columns]
        pieces = max((sum(max(1, -(-n // _PIECE)) for n in column) for column in lengths), default=1)
        return cls(rejected, call, len(table), pieces)

    def holds(self, table: pa.Table) -> bool:
        """Whether a table may be part of the result; not if it is put together of several, which adds pieces."""
        return len(table) <= self.rows and pieces_of(table) <= self.pieces


def pieces_of(table: pa.Table) -> int:
    """The pieces of a result's columns in a table: of the one that has the most."""
    own = [column for field, column in zip(table.schema, table.columns, strict=True) if _token_of(field) is not None]
    return max((column.num_chunks for column in own), default=0)


def with_token(table: pa.Table, token: str) -> pa.Table:
    """The table with a token in each of its columns."""
    schema = table.schema
    for i, field in enumerate(schema):
        schema = schema.set(i, field.with_metadata({**(field.metadata or {}), _FIELD: token.encode()}))
    return table.cast(schema)


def tokens_of(table: pa.Table) -> list[str]:
    """The tokens in the columns of a table, each once."""
    return list(dict.fromkeys(token.decode() for token in map(_token_of, table.schema) if token is not None))


def _token_of(field: pa.Field) -> bytes | None:
    return None if field.metadata is None else field.metadata.get(_FIELD)
