"""Bad rows as data: each leaves as a reject with its reason, never as an exception and never in silence."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.model.columns import nulls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

NON_FINITE = "non-finite value"
WRONG_DIMENSION = "wrong dimension"
NEGATIVE_WEIGHT = "negative weight"
WEIGHTS_ABOVE_ONE = "weights above 1"
EMPTY_SAMPLES = "empty samples"
NO_DIRECTION = "no direction"
ALL_MISSING = "all attributes missing"
BAD_EXISTENCE = "existence outside (0, 1]"
NEGATIVE_MARGIN = "negative margin"
NEGATIVE_SPREAD = "negative sigma or radius"
BAD_COVARIANCE = "not a covariance"
BAD_LATITUDE = "latitude outside [-90, 90]"
LARGE_ERROR = "error above 100 km"
NOT_A_POINT = "not a point"
NULL_KEY = "null key"
NULL_TIME = "null time"
NULL_PARTITION = "null partition"
LATE = "late"
FUTURE = "future"
BAD_MOTION = "bad motion"
SAME_TIME = "same time"
NO_WINDOW = "no window"
NO_LOCATION = "no location"
BAD_CONDITION = "bad condition"
BAD_REGION = "bad region"
NEVER_TRUE = "can never match"
BAD_CHANGE = "bad change"
NO_SUCH_ROW = "no such row"
NOT_DECODED = "cannot be decoded"

#: A column of a frame that was decoded from messages: null, or the message where it could not be decoded.
UNDECODED = "_undecoded"


class Defects:
    """Marks rows of a batch as unusable; the first reason found for a row is the one reported."""

    def __init__(self, n: int) -> None:
        self.bad = np.zeros(n, bool)
        self.found: list[tuple[NDArray[np.int64], str, Callable[[int], str]]] = []

    def mark(self, rows: NDArray[np.bool_] | np.bool_, reason: str, detail: Callable[[int], str]) -> None:
        """Reject the ``rows`` (a mask) not yet rejected; ``detail`` words the trouble of one row."""
        if not np.count_nonzero(rows):
            return
        fresh = np.flatnonzero(rows & ~self.bad)
        if len(fresh):
            self.bad[fresh] = True
            self.found.append((fresh, reason, detail))

    def listed(self) -> list[tuple[int, str, str]]:
        """(row, reason, detail) of every rejected row, in row order."""
        found = [(int(i), reason, detail(int(i))) for rows, reason, detail in self.found for i in rows]
        return sorted(found)


@lru_cache(maxsize=64)
def reject_schema(key: pa.DataType, time: pa.DataType) -> pa.Schema:
    """Columns of reject rows, for keys and times of these types."""
    text = pa.string()
    return pa.schema(
        [("stream", text), ("key", key), ("time", time), ("reason", text), ("detail", text), ("values", text)]
    )


@lru_cache(maxsize=64)
def no_rejects(key: pa.DataType, time: pa.DataType) -> pa.Table:
    """No reject rows, for keys and times of these types."""
    return reject_schema(key, time).empty_table()


def read_columns(table: Any, columns: Iterable[str]) -> list[str]:
    """These columns of a frame, each once, and the one of messages that could not be decoded, if it has one."""
    there = [UNDECODED] if UNDECODED in (table.column_names if isinstance(table, pa.Table) else table.columns) else []
    return list(dict.fromkeys([*columns, *there]))


def check_decoded(table: pa.Table, defects: Defects) -> None:
    """Mark rows whose message could not be decoded."""
    if table.schema.get_all_field_indices(UNDECODED):
        column = table[UNDECODED]
        defects.mark(~nulls(column), NOT_DECODED, lambda i: _place_of(column[i].as_py()))


def _place_of(message: Any) -> str:
    if not isinstance(message, dict):
        return str(message)
    return ", ".join(f"{name} {message[name]}" for name in ("topic", "partition", "offset") if name in message)


def shown_values(table: pa.Table, columns: Sequence[str], rows: pa.Array) -> list[str]:
    """What rejected rows hold in some columns as JSON; of a message that could not be decoded the message."""
    held = table.select(list(columns)).take(rows).to_pylist() if columns else [{}] * len(rows)
    if UNDECODED not in table.column_names:
        return [as_json(row) for row in held]
    messages = table[UNDECODED].take(rows).to_pylist()
    return [
        as_json({n: v for n, v in row.items() if n != UNDECODED}) if message is None else as_text(message)
        for row, message in zip(held, messages, strict=True)
    ]


def as_json(values: dict[str, Any]) -> str:
    """The values of a row as JSON; what JSON has no word for (NaN, dates, bytes) becomes text."""
    return as_text(values)


def as_text(value: Any) -> str:
    """A nested value as JSON, as in `as_json`."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def concat_rejects(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Reject tables one after the other, all in ``schema``."""
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])


def check_partition(table: pa.Table, column: str, defects: Defects) -> None:
    """Mark rows without a partition."""
    defects.mark(nulls(table[column]), NULL_PARTITION, lambda _: f"column {column!r} is null")
