"""Options of sinks that are methods of Spark's writer, over which it passes in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["not_appended"]


def not_appended(kind: str, options: Mapping[str, Any]) -> str | None:
    """What of the options of a sink does not go with batches that are appended, and what to do; None: nothing."""
    named = {name.lower(): name for name in options}
    mode = str(options[named["mode"]]) if "mode" in named else "append"
    if mode.lower() != "append":
        return (
            f"has mode={mode!r}: the batches of a query are appended, each once. Leave mode out. To begin anew, name "
            "an empty folder or a new table, and a new checkpoint."
        )
    if "partitionby" in named and kind != "delta":
        instead = "Make the table before, with its partitions" if kind == "iceberg" else "Write to a Delta table"
        return f"has {named['partitionby']!r}, which only 'delta' takes. {instead}, or leave it out."
    return None
