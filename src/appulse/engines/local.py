"""The engine in this process: tables in, tables out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from appulse.engines.call import JoinCall, frontier, late_rejects, to_table
from appulse.errors import BadArgument, bad_rows
from appulse.model.defects import concat_rejects
from appulse.model.encode import check_columns, encode, infer_dimensions
from appulse.operators.similarity_join import Answers, SimilarityJoin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.model.encode import Encoding
    from appulse.model.objects import Objects


def as_table(frame: Any) -> pa.Table:
    """A pyarrow, pandas or Polars frame as an Arrow table."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    try:
        return nw.from_native(frame, eager_only=True).to_arrow()
    except TypeError:
        kind = f"{type(frame).__module__}.{type(frame).__name__}"
        raise BadArgument(
            f"A stream's frame is a {kind}. Give a Spark DataFrame, or a pyarrow, pandas or Polars table."
        ) from None


class LocalJoin:
    """A similarity join in process, batch by batch."""

    def __init__(self, call: JoinCall) -> None:
        self.call = call
        self.operator = SimilarityJoin(call.plan)
        self._newest: list[int | None] = [None] * len(call.encodings)
        self._rejects: list[pa.Table] = []
        self._label_types: dict[str, pa.DataType] = {}

    def push(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Take in rows by stream name; the answers they complete."""
        for encoding in self.call.encodings:
            if encoding.name in tables:
                check_columns(encoding, tables[encoding.name].schema)
        self._learn_dimensions(tables)
        limit = frontier(self._newest, self.call.lateness)
        # Nothing is kept before all of it is known to be good: a push that raises has changed nothing.
        batches: list[tuple[int, int, Objects]] = []
        rejected: list[pa.Table] = []
        newest = list(self._newest)
        for i, encoding in enumerate(self.call.encodings):
            table = tables.get(encoding.name)
            if table is None:
                continue
            objects, rejects = encode(self._with_known_labels(table, encoding), encoding)
            rejected += self._checked(rejects)
            if limit is not None and (objects.time < limit).any():
                late = objects.time < limit
                rejected += self._checked(late_rejects(objects, np.flatnonzero(late), limit, encoding))
                objects = objects.take(np.flatnonzero(~late))
            if len(objects):
                known, own = newest[i], int(objects.time.max())
                newest[i] = own if known is None else max(known, own)
                batches.append((i, 0, objects))
        self._newest = newest
        self._rejects += rejected
        if limit is not None:
            self.operator.advance(limit)
        answers = self.operator.push(batches) if batches else Answers.concat([])
        return to_table(answers, self.call)

    def rejects(self) -> pa.Table:
        """Every row that could not be used so far."""
        return concat_rejects(self._rejects, self.call.reject_schema)

    def _with_known_labels(self, table: pa.Table, encoding: Encoding) -> pa.Table:
        """The table with partitions in the types of earlier pushes: pandas makes 1 a 1.0 where a null is beside it."""
        columns = {f"partition {i + 1}": column for i, column in enumerate(encoding.partition_by)}
        columns |= {"different": encoding.differ} if encoding.differ is not None else {}
        for what, column in columns.items():
            kind = table.schema.field(column).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            known = self._label_types.get(what, kind)
            known = self._label_types[what] = kind if pa.types.is_null(known) else known
            if kind != known:
                try:
                    cast = table[column].cast(known)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise BadArgument(
                        f"Column {column!r} of stream {encoding.name!r} was {known} in earlier pushes and is {kind}: "
                        f"{error}. Cast it before the push."
                    ) from None
                table = table.set_column(table.schema.get_field_index(column), column, cast)
        return table

    def _checked(self, rejects: pa.Table) -> list[pa.Table]:
        if len(rejects) == 0:
            return []
        if self.call.on_reject == "fail":
            raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])
        return [rejects]

    def _learn_dimensions(self, tables: Mapping[str, pa.Table]) -> None:
        if self.call.encodings[0].dimensions is not None:
            return
        for encoding in self.call.encodings:
            table = tables.get(encoding.name)
            d = None if table is None else infer_dimensions(table, encoding.model)
            if d is not None:
                self.call = self.call.with_dimensions(d)
                return
