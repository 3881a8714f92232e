"""Byte strings between stages: what each is says its first byte."""

from __future__ import annotations

import json
from collections import defaultdict

import pyarrow as pa

#: Blocks of rows begin with a letter of their own.
ANSWERS, REJECTS, METRICS, FLOORS, PRESENCE, END, NOTES, PAIRS = b"A", b"R", b"M", b"F", b"P", b"E", b"N", b"Q"
LEGS, PROGRESS, WITHDRAWN = b"L", b"G", b"W"


def table_bytes(tag: bytes, table: pa.Table) -> bytes:
    """A table as one byte string behind its tag."""
    sink = pa.BufferOutputStream()
    sink.write(tag)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def read_table(blob: bytes) -> pa.Table:
    """The table behind a tag."""
    return pa.ipc.open_stream(pa.py_buffer(blob)[1:]).read_all()


def end_mark(newest: int) -> bytes:
    """The streams have ended, the newest row had this time."""
    return END + str(newest).encode()


def by_tag(blobs: list[bytes]) -> dict[bytes, list[bytes]]:
    """The blobs by what they are, in one order: a shuffle has none, and what a batch leaves in the log must have."""
    sorted_: dict[bytes, list[bytes]] = defaultdict(list)
    for blob in sorted(blobs):
        sorted_[blob[:1]].append(blob)
    return sorted_


def metrics_blob(**figures: float) -> bytes:
    """The figures of one key's micro-batch."""
    return METRICS + json.dumps(figures).encode()
