"""Payloads of messages with the columns ``id STRING, at TIMESTAMP, x DOUBLE``."""

from __future__ import annotations

__all__ = ["BAD", "GOOD"]

_AT = b'"at": "2026-05-04T09:00:30.25Z"'
#: What is a row.
GOOD = [
    b'{"id": "a", %s, "x": 1}' % _AT,
    b'  {"x": 1.5,\r\n "id": "b", %s, "more": [1, {}]}\n' % _AT,
    b'{"id": "twice", %s, "x": 1, "x": -9}' % _AT,
    b'{"id": "fine", "at": "2026-05-04T09:00:30.1234567Z", "x": 2}',
    b'{"id": "minute", "at": "2026-05-04T09:00Z", "x": 3}',
    '{"id": "é", "at": "2026-05-04 09:00:30", "x": 4}'.encode(),
]
#: What is none.
BAD = [
    b"",
    b"{",
    b"null",
    b"5",
    b"[1]",
    b'[{"id": "a"}]',
    b'"a"',
    b"\xff\xfe{",
    "{}".encode("utf-16"),
    b"\xef\xbb\xbf{}",
    b'{"id": "a", %s} garbage' % _AT,
    b'{"id": "a", %s}{"id": "b"}' % _AT,
    b"{'id': 'a'}",
    b'{"id": "a",}',
    b'{"x": 007}',
    b'{"id": 5, %s, "x": 1}' % _AT,
    b'{"id": "a", "at": 1777885230, "x": 1}',
    b'{"id": "a", "at": "soon", "x": 1}',
    b'{"id": "a", %s, "x": "3.5"}' % _AT,
    b'{"id": "a", %s, "x": "Infinity"}' % _AT,
    b'{"id": "a", %s, "x": true}' % _AT,
    b'{"id": "a", %s, "x": {"a": 1}}' % _AT,
]
