"""Batches appended to a Delta table, each once: Delta keeps the last batch of each writer, and skips what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


class DeltaSink:
    """Appends the batches of one query to a table in a folder, or of a catalog, which is made if it is not there."""

    def __init__(self, options: Mapping[str, Any], role: str, query: str) -> None:
        named = {name.lower(): value for name, value in options.items()}
        places = [name for name in ("path", "table") if named.get(name)]
        if len(places) != 1:
            raise BadArgument(
                f"{role}=('delta', ...) has {'both a path and a table' if places else 'no path and no table'}. Give "
                "one: ('delta', {'path': 'lake/pairs'}) or ('delta', {'table': 'db.pairs'})."
            )
        self._table: str | None = named.get("table")
        self.partitions = _columns(named.get("partitionby", ()), role)
        taken = ("table", "partitionby")
        kept = {name: value for name, value in options.items() if name.lower() not in taken}
        self._options = {"txnAppId": f"appulse-{role}-{query}"} | kept

    def write(self, frame: DataFrame, number: int) -> None:
        """Append a batch."""
        writer = frame.write.format("delta").options(**self._options, txnVersion=str(number)).mode("append")
        if self.partitions:
            writer = writer.partitionBy(*self.partitions)
        if self._table is None:
            writer.save()
        else:
            writer.saveAsTable(self._table)


def _columns(given: Any, role: str) -> list[str]:
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name.strip() for name in names):
        raise BadArgument(
            f"{role}=('delta', ...) has partitionBy={given!r}: give the name of a column, or several as a list."
        )
    return [name.strip() for name in names]
