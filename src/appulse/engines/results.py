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

#: So many results are known by what was made of them, after they themselves are gone.
MOST_RECENT = 64
_PREFIX, _METRICS = "appulse_result_", "appulse "
# Of the columns of tables: unlike that of schemas, their metadata survives a renaming.
_FIELD = b"appulse.result"

Kept = TypeVar("Kept")


class Behind(Generic[Kept]):
    """What is kept of results: while they live, and of the latest beyond that."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._latest: deque[Kept] = deque(maxlen=MOST_RECENT)

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, token: str, result: Any, kept: Kept) -> None:
        """Keep this of a result."""
        self._known[token] = kept
        self._latest.append(kept)
        weakref.finalize(result, _let_go, kept).atexit = False

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


def with_token(table: pa.Table, token: str) -> pa.Table:
    """The table with a token in each of its columns."""
    schema = table.schema
    for i, field in enumerate(schema):
        schema = schema.set(i, field.with_metadata({**(field.metadata or {}), _FIELD: token.encode()}))
    return table.cast(schema)


def tokens_of(table: pa.Table) -> list[str]:
    """The tokens in the columns of a table, each once."""
    found = (field.metadata.get(_FIELD) for field in table.schema if field.metadata)
    return list(dict.fromkeys(token.decode() for token in found if token is not None))
