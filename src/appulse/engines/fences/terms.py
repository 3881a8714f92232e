"""The terms of fences: until when each holds, and for which readings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.carrying import carried_by
from appulse.engines.queries.call import CONDITION, UNTIL, check_until, until_of
from appulse.errors import BadArgument
from appulse.kernels.fences import NEVER
from appulse.model.batch import SHARED, Batch, Ragged
from appulse.model.columns import chunk, decoded_type, is_text, plain_type
from appulse.model.uncertainty import is_certain
from appulse.operators.fences import Terms
from appulse.queries.condition import parse
from appulse.queries.sets import QuerySet

if TYPE_CHECKING:
    from appulse.model.carried import Columns
    from appulse.model.encoding import Encoding
    from appulse.model.objects import Objects
    from appulse.operators.fences import Held


@dataclass(frozen=True)
class TermSet(Batch):
    """The terms of some fences, and the texts of their conditions, each once."""

    terms: Terms
    texts: tuple[str, ...] = field(metadata=SHARED)


def types_of(encoding: Encoding, schema: pa.Schema) -> Columns:
    """The columns that conditions may name: all but uncertain coordinates."""
    certain = is_certain(encoding.model)
    known = [one for one in schema if certain or not encoding.is_dimension(one.name)]
    return tuple((one.name, decoded_type(plain_type(one.type))) for one in known)


def columns_of(table: pa.Table, types: Columns) -> Columns:
    """The columns that the conditions of fences name."""
    if CONDITION not in table.column_names:
        return ()
    named: set[str] = set()
    for text in chunk(table[CONDITION]).drop_null().unique().to_pylist():
        try:
            named.update(parse(text).columns)
        except BadArgument:  # reported with the other conditions that cannot be used
            continue
    return tuple((name, kind) for name, kind in types if name in named)


def terms_of(table: pa.Table, unit: str, types: Columns) -> tuple[TermSet | None, list[tuple[int, str]]]:
    """The terms of the fences of a table, None without any; and those that cannot be used, by row, and why."""
    ends, wrong = until_of(table, unit)
    condition, texts = np.full(len(table), -1), ()
    if CONDITION in table.column_names:
        encoded = chunk(table[CONDITION]).cast(pa.string()).dictionary_encode()
        condition, texts = np.asarray(encoded.indices.fill_null(-1), np.int64), tuple(encoded.dictionary.to_pylist())
        refused = dict(_read(texts, types)[1])
        wrong += [(i, refused[k]) for i, k in enumerate(condition.tolist()) if k in refused]
    elif ends is None:
        return None, wrong
    ends = np.full(len(table), NEVER) if ends is None else np.minimum(ends, NEVER)
    return TermSet(Terms(ends, condition), texts), sorted(wrong)


def both_terms(some: TermSet | None, n: int, others: TermSet | None, m: int) -> TermSet | None:
    """The terms of n fences and of m others behind them; None where none has any."""
    if some is None and others is None:
        return None
    texts: dict[str, int] = {text: i for i, text in enumerate(() if some is None else some.texts)}
    parts = [_terms_of(some, n)]
    own = _terms_of(others, m)
    if others is not None and others.texts:
        numbers = np.array([*(texts.setdefault(text, len(texts)) for text in others.texts), -1])
        own = replace(own, condition=numbers[own.condition])
    return TermSet(Terms.concat([*parts, own]), tuple(texts))


def _terms_of(held: TermSet | None, n: int) -> Terms:
    """The terms of n fences, which hold at all times where none are ``held``."""
    return Terms(np.full(n, NEVER), np.full(n, -1)) if held is None else held.terms


def check_terms(schema: pa.Schema, time_type: pa.DataType, types: Columns) -> None:
    """Raise `BadArgument` unless columns of terms have types that can serve."""
    if UNTIL in schema.names:
        check_until(schema.field(UNTIL).type, time_type)
    if CONDITION not in schema.names:
        return
    kind = schema.field(CONDITION).type
    if not is_text(kind):
        raise BadArgument(f"Column 'condition' of the fences is {kind}. It has to be text.")
    if not types:
        raise BadArgument("The first frame of fences had no column 'condition', and this one has. Give it to all.")


def judged(
    rows: Objects, encoding: Encoding, types: Columns, held: TermSet | None, *, carried: bool = False
) -> tuple[Objects, Held | None]:
    """Rows, and the conditions that hold of each; unless columns are ``carried`` on, rows have their own keys."""
    conditional = held is not None and len(held.texts) > 0
    if not encoding.behind or (carried and not conditional):
        return rows, None
    keys, columns = carried_by(rows.key, np.zeros(len(rows), np.int64), [encoding], encoding.carry)
    if not carried:
        rows = replace(rows, key=keys)
    if held is None or not conditional:
        return rows, None
    queries, _ = _read(held.texts, types)
    names = [name for name, _ in encoding.carry]
    row, slot = queries.match(dict(zip(names, columns, strict=True)), len(rows), counted=False)
    number = np.asarray(queries.keys(slot), np.int64)
    order = np.lexsort((number, row))
    offsets = np.searchsorted(row[order], np.arange(len(rows) + 1))
    return rows, Ragged(offsets, number[order])


@lru_cache(maxsize=8)
def _read(texts: tuple[str, ...], types: Columns) -> tuple[QuerySet, list[tuple[int, str]]]:
    """Conditions by number, and those that cannot be used."""
    queries = QuerySet(dict(types), pa.int64())
    added = queries.add(pa.array(range(len(texts)), pa.int64()), pa.array(texts, pa.string()))
    return queries, [(one.row, one.reason) for one in added.refused]
