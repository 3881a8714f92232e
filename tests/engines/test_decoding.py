"""Messages of MQTT as rows: what is a row, what is not, and why; each alone as among others."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from appulse.engines.decoding import MESSAGE, check_readable, decoded
from appulse.engines.mqtt import SCHEMA
from appulse.errors import BadArgument
from appulse.model.ddl import columns_of
from tests.helpers.payloads import BAD, GOOD

COLUMNS = columns_of("id STRING, at TIMESTAMP, x DOUBLE")


def messages(payloads: list[bytes]) -> pa.Table:
    n = len(payloads)
    return pa.table([["vans"] * n, [0] * n, range(7, 7 + n), [0] * n, payloads], schema=SCHEMA)


def one(payload: bytes, columns: pa.Schema = COLUMNS) -> dict[str, Any]:
    (row,) = decoded(messages([payload]), columns).to_pylist()
    return dict(row)


@pytest.mark.parametrize("payload", GOOD)
def test_a_row_has_what_the_message_says(payload: bytes) -> None:
    row = one(payload)
    assert row["_undecoded"] is None
    given = json.loads(payload)
    for name in ("id", "x"):
        assert str(row[name]) == str(given.get(name) if name == "id" or given.get(name) is None else float(given[name]))


@pytest.mark.parametrize("payload", BAD)
def test_what_is_no_row_is_there_with_its_place_and_payload(payload: bytes) -> None:
    row = one(payload)
    bad = row.pop("_undecoded")
    assert row == {"id": None, "at": None, "x": None}
    assert (bad["topic"], bad["partition"], bad["offset"]) == ("vans", 0, 7)
    assert (b64decode(bad["payload"]) if bad["base64"] else bad["payload"].encode()) == payload
    assert bad["detail"].startswith("topic vans, partition 0, offset 7: the message ")


def test_each_message_is_decoded_as_it_is_alone() -> None:
    payloads = [one for pair in zip(BAD, [*GOOD] * len(BAD), strict=False) for one in pair]
    together = decoded(messages(payloads), COLUMNS)
    assert together.schema == COLUMNS.append(pa.field("_undecoded", MESSAGE))
    alone = pa.concat_tables([decoded(messages(payloads).slice(i, 1), COLUMNS) for i in range(len(payloads))])
    assert str(together.to_pylist()) == str(alone.to_pylist())
    assert decoded(messages([]), COLUMNS).num_rows == 0


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-05-04T09:00:30.5Z", datetime(2026, 5, 4, 9, 0, 30, 500_000, UTC)),
        ("2026-05-04T11:00:30+02:00", datetime(2026, 5, 4, 9, 0, 30, 0, UTC)),
        ("2026-05-04T09:00:30.1234567Z", datetime(2026, 5, 4, 9, 0, 30, 123_456, UTC)),
        ("2026-05-04T09:00:30.123456789+00:00", datetime(2026, 5, 4, 9, 0, 30, 123_456, UTC)),
        ("2026-05-04T09:00Z", datetime(2026, 5, 4, 9, 0, tzinfo=UTC)),
        ("2026-05-04 09:00:30", datetime(2026, 5, 4, 9, 0, 30, 0, UTC)),
        ("2026-05-04", datetime(2026, 5, 4, tzinfo=UTC)),
    ],
)
def test_times_are_text_in_iso_8601(text: str, at: datetime) -> None:
    assert one(json.dumps({"at": text}).encode())["at"] == at


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("DATE", "2026-05-04", date(2026, 5, 4)),
        ("BINARY", "YWI=", b"ab"),
        ("ARRAY<DOUBLE>", [1, 2.5], [1.0, 2.5]),
        ("BOOLEAN", True, True),
        ("BIGINT", 2**62, 2**62),
        ("TIMESTAMP_NTZ", "2026-05-04T09:00:30", datetime.fromisoformat("2026-05-04T09:00:30")),
    ],
)
def test_values_of_further_types(kind: str, given: Any, value: Any) -> None:
    assert one(json.dumps({"c": given}).encode(), columns_of(f"c {kind}"))["c"] == value
    assert one(b'{"c": {}}', columns_of(f"c {kind}"))["_undecoded"] is not None


NESTED = columns_of("c STRUCT<d: DATE, b: ARRAY<BINARY>, t: ARRAY<STRUCT<at: TIMESTAMP>>>, n BIGINT")


def test_values_within_others_are_as_those_of_columns() -> None:
    given = {"d": "2026-05-04", "b": ["YWI=", None], "t": [{"at": "2026-05-04T09:00:30.123456789Z"}, None, {}]}
    at = datetime(2026, 5, 4, 9, 0, 30, 123_456, UTC)
    whole = {"d": date(2026, 5, 4), "b": [b"ab", None], "t": [{"at": at}, None, {"at": None}]}
    nothing = {"d": None, "b": None, "t": None}
    for c, value in ((given, whole), ({}, nothing), (None, None)):
        assert one(json.dumps({"n": 1, "c": c}).encode(), NESTED) == {"c": value, "n": 1, "_undecoded": None}
    for bad in ({"d": "soon"}, {"b": ["YW"]}, {"b": [5]}, {"t": [{"at": "soon"}]}, 5):
        assert one(json.dumps({"n": 1, "c": bad}).encode(), NESTED)["_undecoded"] is not None


@pytest.mark.parametrize(
    "given", ["1234567890.123456789012345678", "-0.000000000000000001", "12345678901234567890", "1e3"]
)
def test_decimals_have_all_their_digits(given: str) -> None:
    columns = columns_of("c DECIMAL(38, 18), l ARRAY<DECIMAL(38, 18)>, x DOUBLE")
    row = one(f'{{"c": {given}, "l": [{given}, "{given}"], "x": {given}, "more": {given}}}'.encode(), columns)
    wanted = Decimal(given)
    assert row == {"c": wanted, "l": [wanted, wanted], "x": float(given), "_undecoded": None}


def test_numbers_beside_decimals_may_be_beyond_them() -> None:
    columns, beyond = columns_of("c DECIMAL(9, 1), x DOUBLE"), "1E" + "9" * 30
    assert one(f'{{"x": {beyond}}}'.encode(), columns)["x"] == float("inf")
    assert one(f'{{"c": {beyond}}}'.encode(), columns)["_undecoded"] is not None


def test_columns_that_are_not_read_from_json() -> None:
    with pytest.raises(BadArgument, match="not read from JSON"):
        check_readable(columns_of("c MAP<STRING, INT>"))


def test_a_message_may_be_large() -> None:
    assert len(one(json.dumps({"id": "x" * 3_000_000}).encode())["id"]) == 3_000_000
