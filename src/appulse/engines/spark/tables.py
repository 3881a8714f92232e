"""Tables as byte strings: between stages, in logs, and on their way to workers."""

from __future__ import annotations

import pyarrow as pa


def packed(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unpacked(data: bytes | pa.Buffer) -> pa.Table:
    """The table again."""
    return pa.ipc.open_stream(data).read_all()
