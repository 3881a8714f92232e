"""Whether rows satisfy queries, pair by pair: those of one template together, or query by query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.queries.columns import Values
from appulse.queries.templates import Texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.queries.rows import Rows
    from appulse.queries.templates import Template

_MANY = 256  # rows of a query from which on its constants stay single values
_ROOM = 1 << 22  # values that conditions are given at once


def hold(
    made: Template, texts: pa.Array, which: NDArray[np.int64], rows_of: Rows, rows: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Whether each of ``rows`` satisfies the condition among ``texts`` that ``which`` names for it."""
    given = made.given(Texts.of(texts), np.arange(len(texts)))
    if len(rows) >= _MANY * len(texts):
        return _query_by_query(made, given, which, rows_of, rows)
    found = np.empty(len(rows), bool)
    size = max(1, _ROOM // (len(given) + len(made.columns) + 1))
    for begin in range(0, len(rows), size):
        part = slice(begin, begin + size)
        found[part] = _holds(made, [values.take(which[part]) for values in given], rows_of, rows[part])
    return found


def _query_by_query(
    made: Template, given: Sequence[Values], which: NDArray[np.int64], rows_of: Rows, rows: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """As `hold`, for few queries of many rows."""
    found = np.empty(len(rows), bool)
    order = np.argsort(which, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(which[order])) + 1):
        number = which[own[0]]
        single = [Values(one.kind, np.array(one.data[number]), np.array(one.valid[number])) for one in given]
        found[own] = _holds(made, single, rows_of, rows[own])
    return found


def _holds(made: Template, given: Sequence[Values], rows_of: Rows, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    columns = {column.name: rows_of.values(column.name, rows) for column in made.columns}
    return np.broadcast_to(made.holds(columns, given), len(rows))
