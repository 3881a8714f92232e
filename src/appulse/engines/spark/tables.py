"""Tables as byte strings: between stages, in logs, and on their way to workers."""

from __future__ import annotations

import pyarrow as pa

from appulse.model.codec import MAGIC, pack_columns, unpack_columns


def packed(table: pa.Table) -> bytes:
    """A table as bytes."""
    return pack_columns("table", {"rows": table}, compression="zstd")


def unpacked(data: bytes | pa.Buffer) -> pa.Table:
    """The table again; those that were written before tables had a checksum are Arrow streams."""
    blob = memoryview(data)
    if bytes(blob[:4]) != MAGIC:
        return pa.ipc.open_stream(blob).read_all()
    return unpack_columns("table", blob)[0]["rows"]
