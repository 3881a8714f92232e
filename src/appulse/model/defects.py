"""Bad rows as data: each leaves as a reject with its reason, never as an exception and never in silence."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import lru_cache
from json.encoder import encode_basestring
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from appulse.errors import shown_scalar
from appulse.model.columns import chunk, held, nulls, single_digits
from appulse.model.times import is_time, to_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Ints

    Details = Callable[[Ints], Sequence[str]]  # of some rows, a text each

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
LARGE_ERROR_ON_SKY = "error above 100,000 arc seconds"
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

#: The detail of a row with holes that are left.
NOT_FILLED = "what is missing cannot be filled with finite numbers"

#: Of every reason: its cause, and what to do. `docs/errors.md` is made of it, by `tools/errors.py`.
REASONS: dict[str, tuple[str, str]] = {
    NULL_TIME: ("the time is null", "Give every row a time, or drop such rows before the call."),
    NULL_KEY: ("the key is null", "Fill the key, with a number of your own if there is none."),
    NULL_PARTITION: ("a column of `partition_by` is null", "Fill it, or leave it out of `partition_by`."),
    NON_FINITE: (
        (
            "a coordinate, sigma, radius, margin, sample, weight, value of a delta window or time is null, NaN or "
            "infinite, or a time is out of range"
        ),
        (
            "Correct the column that `detail` names. To fill missing values, use `Incomplete` and an imputer. If times "
            "that are numbers are out of range, give their unit: `Stream(unit=)`."
        ),
    ),
    ALL_MISSING: (
        "all attributes of an `Incomplete` value are missing",
        "Drop such rows, or use `impute(empty_rows=True)`.",
    ),
    EMPTY_SAMPLES: ("the list of samples is null or empty, or all weights are 0", "Give at least one sample."),
    WRONG_DIMENSION: (
        "a sample has another number of coordinates than the call; or there are not as many weights as samples",
        "Give all samples as many coordinates as `Samples(names=...)` has.",
    ),
    NEGATIVE_WEIGHT: ("a weight is below 0", "Weights are probabilities: correct them."),
    WEIGHTS_ABOVE_ONE: ("the weights sum to more than 1 + 1e-9", "Divide the weights by their sum."),
    NEGATIVE_SPREAD: ("a sigma or a radius is below 0", "Correct it; 0 is an exact point."),
    NEGATIVE_MARGIN: ("the margin of a row is below 0", "Correct it; 0 adds nothing to epsilon."),
    BAD_COVARIANCE: (
        "the matrix has a negative eigenvalue",
        "Give the upper triangle row by row: `sxx, sxy, syy` in two dimensions.",
    ),
    NO_DIRECTION: ('all coordinates of a vector are 0, and `metric="cosine"` compares directions', "Drop such rows."),
    BAD_LATITUDE: (
        "a latitude is outside [-90, 90]",
        "Check the order: `Position(lat, lon)`. Map coordinates in metres go into `Gaussian` or `Exact`.",
    ),
    LARGE_ERROR: ("the error of a position is above 100 km", "Give sigma in metres. Drop rows this inexact."),
    LARGE_ERROR_ON_SKY: (
        "the error of a position on the sky is above 100,000 arc seconds, 27.8 degrees",
        "Give sigma in arc seconds. Drop rows this inexact.",
    ),
    NOT_A_POINT: (
        "a geometry is not a point, cannot be read, or is not of WGS 84 (SRID 0 or 4326)",
        "Convert it to points of longitude and latitude.",
    ),
    BAD_EXISTENCE: ("the existence is null, NaN, 0 or less, or above 1 + 1e-9", "Give a probability in (0, 1]."),
    BAD_MOTION: (
        "a speed or velocity is not a number, negative, or above 3,000 m/s; or a course is outside [0, 360]",
        "Check the unit of `Course(unit=)`. First replace AIS codes such as speed 102.3 and course 360 by null.",
    ),
    SAME_TIME: (
        "another reading of the key has this time; the first in canonical order is kept",
        "Nothing, or give things that share a key separate keys.",
    ),
    LATE: (
        "the row came after the streams had passed its time by more than the lateness",
        "Raise `Stream(lateness=)`. If nearly all rows are late, a clock is ahead: see [late.md](late.md).",
    ),
    FUTURE: (
        "the time is more than `ahead` past the wall clock, or past all rows before it",
        "Correct the clock, or raise `Stream(ahead=)`; see [late.md](late.md).",
    ),
    BAD_CHANGE: ("the column of `Stream(change=)` is neither `add` nor `remove`", "Map your codes to these two."),
    NO_SUCH_ROW: (
        "a `remove` whose row never came within the lateness, or was withdrawn before",
        "Check key and time of the withdrawal; raise the lateness if the row came too late.",
    ),
    NO_WINDOW: (
        "the mapping of windows does not name this sensor",
        "Add the sensor to `window={...}`, or the key `None` for all others.",
    ),
    NO_LOCATION: (
        "neither `locations=` nor `neighbours=` has this sensor",
        "Add a row for the sensor to the frame of locations, or of neighbours.",
    ),
    BAD_CONDITION: (
        "the condition of a query cannot be read, or names a column that does not exist",
        "Correct the condition; `detail` shows the position. Other queries are not affected.",
    ),
    BAD_REGION: (
        "the region of a query or fence is not a valid geometry",
        "Correct it, for example with `shapely.make_valid`.",
    ),
    NEVER_TRUE: (
        "a query that no row can satisfy, such as `x > 2 AND x < 1`",
        "Correct it if it is a mistake. The query stays registered.",
    ),
    NOT_DECODED: (
        (
            "a message or line is empty, or not as its schema says; `values` has the line, or topic, partition, offset "
            "and payload of the message"
        ),
        "Correct the producer, or the schema of the source or `decode_messages`; for MQTT and files `detail` says why.",
    ),
}

#: A column of a frame that was decoded from messages: null, or the message where it could not be decoded.
UNDECODED = "_undecoded"


def each(detail: Callable[[int], str]) -> Details:
    """Texts made row by row, where rows are seldom so."""
    return lambda at: list(map(detail, at.tolist()))


def of_values(what: str, values: NDArray[Any], after: str = "") -> Details:
    """What each row has of some values, between two texts."""
    return lambda at: [f"{what}{value}{after}" for value in values[at].tolist()]


def of_columns(table: pa.Table, columns: Sequence[str], odd: Flags) -> Details:
    """The columns in which each row is ``odd`` (n, columns), with what it holds there."""

    def details(at: Ints) -> list[str]:
        texts = np.full((len(columns), len(at)), "", object)
        for own, name, there in zip(texts, columns, odd[at].T, strict=True):
            own[there] = [f"{name} is {value}" for value in held(table, name, at[there])]
        return [", ".join(filter(None, row)) for row in zip(*texts.tolist(), strict=True)]

    return details


class Defects:
    """Marks rows of a batch as unusable; the first reason found for a row is the one reported."""

    def __init__(self, n: int) -> None:
        self.bad = np.zeros(n, bool)
        self.found: list[tuple[Ints, str, str | Details]] = []

    def mark(self, rows: Flags | np.bool_, reason: str, details: str | Details) -> None:
        """Reject the ``rows`` (a mask) not yet rejected; ``details`` word the trouble of all, or of each."""
        if not np.count_nonzero(rows):
            return
        fresh = np.flatnonzero(rows & ~self.bad)
        if len(fresh):
            self.bad[fresh] = True
            self.found.append((fresh, reason, details))

    def columns(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Row, reason and detail of every rejected row, in row order."""
        text, rows = pa.string(), np.concatenate([np.empty(0, np.int64), *(rows for rows, *_ in self.found)])
        reasons, details = [pa.array([], text)], [pa.array([], text)]
        for at, reason, given in self.found:
            reasons.append(pa.repeat(pa.scalar(reason, text), len(at)))
            found = pa.repeat(pa.scalar(given, text), len(at)) if isinstance(given, str) else pa.array(given(at), text)
            details.append(found)
        order = pa.array(np.argsort(rows))
        return pa.array(rows).take(order), *(pa.concat_arrays(parts).take(order) for parts in (reasons, details))


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


def read_columns(there: Collection[str], columns: Iterable[str]) -> list[str]:
    """These columns, each once, and the one of messages that could not be decoded, if it is among those ``there``."""
    return list(dict.fromkeys([*columns, *([UNDECODED] if UNDECODED in there else [])]))


def check_decoded(table: pa.Table, defects: Defects) -> None:
    """Mark rows whose message could not be decoded."""
    if table.schema.get_all_field_indices(UNDECODED):
        column = table[UNDECODED]
        defects.mark(~nulls(column), NOT_DECODED, lambda at: [_place_of(column[i].as_py()) for i in at.tolist()])


def _place_of(message: Any) -> str:
    if not isinstance(message, dict):
        return str(message)
    if "detail" in message:
        return str(message["detail"])
    return ", ".join(f"{name} {message[name]}" for name in ("topic", "partition", "offset") if name in message)


def _shown_message(message: Any) -> str:
    """A message with its place as JSON; a line of a receiver, which has none, as it is."""
    if isinstance(message, dict) and set(message) == {"detail", "payload"}:
        return str(message["payload"])
    return as_text(message)


def shown_values(table: pa.Table, columns: Sequence[str], rows: pa.Array) -> list[str]:
    """What rejected rows hold in some columns as JSON; of a message that could not be decoded the message."""
    named = [name for name in dict.fromkeys(columns) if name != UNDECODED]
    texts = rows_as_json(table.select(named).take(rows)) if named else ["{}"] * len(rows)
    if UNDECODED not in table.column_names:
        return texts
    messages = table[UNDECODED].take(rows).to_pylist()
    return [text if message is None else _shown_message(message) for text, message in zip(texts, messages, strict=True)]


def rows_as_json(table: pa.Table) -> list[str]:
    """Each row of a table as a JSON object: column by column, as most values are numbers and plain texts."""
    names = [encode_basestring(name).replace("%", "%%") for name in table.column_names]
    form = "{" + ", ".join(f"{name}: %s" for name in names) + "}"
    return [form % row for row in zip(*map(_texts, table.columns), strict=True)]


def _texts(column: pa.ChunkedArray) -> list[str]:
    """The values of a column as JSON; times that Python has no object for are texts."""
    kind = column.type
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):
        values = [shown_scalar(value) for value in column]
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        digits = single_digits(chunk(column))
        return ["null" if v is None else d if isfinite(v) else f'"{d}"' for v, d in zip(values, digits, strict=True)]
    if pa.types.is_floating(kind):
        return ["null" if v is None else repr(v) if isfinite(v) else f'"{v}"' for v in values]
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return ["null" if v is None else str(v) for v in values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["null" if v is None else encode_basestring(v) for v in values]
    return [as_text(value) for value in values]


def as_text(value: Any) -> str:
    """A value as JSON; what JSON has no word for (NaN, dates) becomes text, and bytes base64."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def keys_as(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    """Keys in another type; each for itself, so that its text does not depend on the rows beside it."""
    if keys.type == kind:
        return keys
    if not pa.types.is_string(kind):
        return keys.cast(kind)
    try:
        return keys.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.array([None if key is None else as_text(key) for key in keys.to_pylist()], kind)
    except pa.ArrowInvalid:  # bytes, not all of which are text
        return pa.array([_own_text(key) for key in keys], kind)


def _own_text(key: pa.Scalar) -> str | None:
    try:
        return cast("str | None", key.cast(pa.string()).as_py())
    except pa.ArrowInvalid:
        return as_text(key.as_py())


def concat_rejects(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Reject tables one after the other, all in ``schema``."""
    return pa.concat_tables([schema.empty_table(), *(rejects_as(part, schema) for part in parts)])


def rejects_as(rejects: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rejects with keys and times in the types of a schema."""
    if rejects.schema == schema:
        return rejects
    at = schema.get_field_index("key")
    keys = keys_as(chunk(rejects["key"]), schema.field(at).type)
    return rejects.set_column(at, schema.field(at), keys).cast(schema)


def check_time(table: pa.Table, column: str, unit: str, defects: Defects) -> Ints:
    """Mark rows without a time; the times in microseconds."""
    micros, null, strange = to_micros(chunk(table[column]), unit)
    defects.mark(null, NULL_TIME, f"column {column!r} is null")
    known = f"a finite time in range{'' if is_time(table[column].type) else f' in unit={unit!r}'}"
    defects.mark(
        strange, NON_FINITE, lambda at: [f"{column} is {value}, not {known}" for value in held(table, column, at)]
    )
    return micros


def check_partition(table: pa.Table, column: str, defects: Defects) -> None:
    """Mark rows without a partition."""
    defects.mark(nulls(table[column]), NULL_PARTITION, f"column {column!r} is null")
