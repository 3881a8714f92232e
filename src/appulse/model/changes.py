"""Rows that withdraw others: what a column of changes says, and how such rows travel among those that are added.

Words are those of appulse (``add``, ``remove``), of Delta's change data feed (``_change_type``) and of Debezium
(``op``). Debezium's ``u`` is a row in place of another of its key and time: it withdraws that one, and is added.
Withdrawals that leave open which row they mean get the values of the row that stood before them in their table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.kernels.newest import key_numbers
from appulse.model import defects as why
from appulse.model.carried import with_carried
from appulse.model.columns import chunk, plain_types
from appulse.model.defects import UNDECODED, Defects
from appulse.model.encode import check_identity, checked, encode, keys_of, objects_of, rejects_of
from appulse.model.objects import Objects
from appulse.model.strings import Labels
from appulse.model.strings import encode as canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.model.encoding import Encoding

#: What a row does: it is added; it withdraws a row that has its values, any row of its key and time, or another row
#: than one of its own values; the row of its table that it came in place of; a row of earlier steps, or else one that
#: has its values.
ADDED, WITHDRAWS, WITHDRAWS_ANY, WITHDRAWS_OTHER, WITHDRAWS_FORMER, WITHDRAWS_LIKELY = 1, -1, -2, -3, -4, -5
_ADD, _REMOVE, _UPDATE, _UNKNOWN = range(4)
_WORDS = {
    "add": _ADD,
    "remove": _REMOVE,
    "insert": _ADD,
    "update_postimage": _ADD,
    "delete": _REMOVE,
    "update_preimage": _REMOVE,
    "c": _ADD,
    "r": _ADD,
    "u": _UPDATE,
    "d": _REMOVE,
}
_ROW = "appulse row"  # a column beside the user's
#: Times this, bits of all places change with each time.
ODD = 0x9E3779B97F4A7C15 - (1 << 64)


def additions(rows: Objects) -> Objects:
    """The rows that are added; they come first."""
    return rows if rows.change is None else rows.slice(0, int((rows.change == ADDED).sum()))


def parted(rows: Objects) -> tuple[Objects, Objects | None]:
    """The rows that are added, as rows that nothing withdraws, and those that withdraw others."""
    if rows.change is None:
        return rows, None
    fresh = additions(rows)
    return replace(fresh, change=None), rows.slice(len(fresh), len(rows)) if len(fresh) < len(rows) else None


def newest(rows: Any) -> int:
    """The newest time of rows that move time on; 0: there is none."""
    change = getattr(rows, "change", None)
    time = rows.time if change is None else rows.time[change == ADDED]
    return int(time.max()) if len(time) else 0


def encode_changes(table: pa.Table, encoding: Encoding) -> tuple[Objects, pa.Table]:
    """The good rows, first those that are added, and the bad ones as rejects."""
    assert encoding.change is not None  # noqa: S101 - asked before
    plain = replace(encoding, change=None)
    given = chunk(table[encoding.change]).cast(pa.string())
    does = _codes(given)
    if (rows := _all_good(table, does, plain)) is not None:
        return rows, plain.no_rejects
    if UNDECODED in table.column_names:  # a reject of its own, whatever it does
        does[np.asarray(table[UNDECODED].is_valid())] = _ADD
    added, bad = encode(table.filter(pa.array((does == _ADD) | (does == _UPDATE))), plain)
    added = replace(added, change=np.full(len(added), ADDED))
    former, settled = _formers(table, does, plain)
    withdrawn, bad_too = _withdrawals(table, does, plain, added, settled)
    parts = [added, *former, *withdrawn]
    return Objects.concat(parts), pa.concat_tables([bad, bad_too, _strange(table, does, given, encoding)])


def removals(words: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which rows withdraw others and add none, by their changes."""
    removes: NDArray[np.bool_] = _codes(chunk(words).cast(pa.string())) == _REMOVE
    return removes


def _codes(given: pa.Array) -> NDArray[np.int8]:
    """What rows do, by their changes."""
    words = given.dictionary_encode()
    known = [_WORDS.get((word or "").strip().lower(), _UNKNOWN) for word in words.dictionary.to_pylist()]
    codes = np.asarray(words.indices.fill_null(len(known)))
    does: NDArray[np.int8] = np.array([*known, _UNKNOWN], np.int8)[codes]
    return does


def _all_good(table: pa.Table, does: NDArray[Any], encoding: Encoding) -> Objects | None:
    """The rows, read at once, where all of them are good and are added or withdraw others; None where some are not."""
    columns = [table.column(name) for name in encoding.columns()]
    if encoding.where or (does > _REMOVE).any() or any(column.null_count for column in columns):
        return None
    rows, bad = encode(table, encoding)
    if len(rows) < len(table) or len(bad):
        return None
    if (does[1:] < does[:-1]).any():
        rows, does = rows.take(np.argsort(does, kind="stable")), np.sort(does)
    return replace(rows, change=np.where(does == _ADD, ADDED, WITHDRAWS))


def _strange(table: pa.Table, does: NDArray[Any], given: pa.Array, encoding: Encoding) -> pa.Table:
    """Rows whose change is no word that is known."""
    at = np.flatnonzero(does == _UNKNOWN)
    table = plain_types(table.select(encoding.columns()).take(pa.array(at)).combine_chunks())
    defects = Defects(len(at))
    defects.mark(
        np.ones(len(at), bool),
        why.BAD_CHANGE,
        lambda i: f"column {encoding.change!r} is {given[int(at[i])].as_py()!r}, wanted 'add' or 'remove'",
    )
    return rejects_of(table, encoding, defects)


def _withdrawals(
    table: pa.Table, does: NDArray[Any], encoding: Encoding, added: Objects, settled: Sequence[int]
) -> tuple[list[Objects], pa.Table]:
    """The rows that withdraw others, but for those that are ``settled``.

    Their values need not be there; those with values that are left out are, too, but for those in place of others.
    """
    at = np.flatnonzero((does == _REMOVE) | (does == _UPDATE))
    table = plain_types(table.select(encoding.columns()).take(pa.array(at)).combine_chunks())
    defects = Defects(len(at))
    time = check_identity(table, encoding, defects)
    refused = rejects_of(table, encoding, defects)
    numbered = table.append_column(_ROW, pa.array(np.arange(len(at))))
    whole, _ = checked(numbered, replace(encoding, where=()), also=[_ROW])
    known = np.asarray(whole.table[_ROW])
    kept = whole if not encoding.where else checked(numbered.take(pa.array(known)), encoding, also=[_ROW])[0]
    done = np.isin(at, settled)
    updates = does[at] == _UPDATE
    left_out = known[updates[known] & ~np.isin(known, np.asarray(kept.table[_ROW]))]
    bare = np.flatnonzero(~defects.bad & ~updates)
    bare = bare[~np.isin(bare, known) & ~done[bare]]
    parts = []
    if len(left_out):
        whole, _ = checked(numbered.take(pa.array(left_out)), replace(encoding, where=()), also=[_ROW])
    for some in (kept, *([whole] if len(left_out) else [])):
        valued = np.asarray(some.table[_ROW])
        if len(valued):
            withdraws = np.where(updates[valued], WITHDRAWS_OTHER, WITHDRAWS)
            parts.append(replace(objects_of(some, encoding), change=withdraws).filter(~done[valued]))
    if len(bare):
        like = next((part for part in (added, *parts) if len(part)), None)
        parts.append(_bare(table.take(pa.array(bare)), time[bare], encoding, like))
    # A row in place of another that cannot be used is a reject already.
    return parts, refused.filter(pa.array(~updates[defects.bad])) if len(refused) else refused


def _formers(table: pa.Table, does: NDArray[Any], encoding: Encoding) -> tuple[list[Objects], list[int]]:
    """Rows of the table that later ones in it withdraw, and the rows whose withdrawals are settled by that.

    A row in place of another, or a withdrawal without values, means the one row of its key and time that stands before
    it. If that came in place of a row as well, its withdrawal passes on.
    """
    rows = table.select(encoding.columns()).append_column(_ROW, pa.array(np.arange(len(table))))
    defects = Defects(len(table))
    time = check_identity(plain_types(rows.combine_chunks()), encoding, defects)
    good = np.flatnonzero(~defects.bad & (does != _UNKNOWN))
    names = _identities(rows.take(pa.array(good)), time[good], encoding)
    if len(names) == 0:
        return [], []
    good = good[np.array(list(names))]
    some = rows.take(pa.array(good))
    known = set(np.asarray(checked(some, replace(encoding, where=()), also=[_ROW])[0].table[_ROW]).tolist())
    kept = set(np.asarray(checked(some, encoding, also=[_ROW])[0].table[_ROW]).tolist())
    standing: dict[Any, list[int]] = {}
    former: dict[int, int] = {}
    open_: set[int] = set()
    settled: list[int] = []
    for i, name in zip(good.tolist(), names.values(), strict=True):
        held = standing.setdefault(name, [])
        adds, bare = does[i] != _REMOVE, does[i] == _REMOVE and i not in known
        if adds and i not in kept and not (does[i] == _UPDATE and i in known):
            continue
        if does[i] == _UPDATE:
            open_.add(i)
        if (bare or does[i] == _UPDATE) and len(held) == 1:
            before = held.pop()
            former[before] = WITHDRAWS_LIKELY if bare and before not in open_ else WITHDRAWS_FORMER
            done = before if before in open_ else i
            settled.append(done)
            open_.discard(done)
        elif not adds:
            held.clear()
        held += [i] if adds and i in kept else []
    if not former:
        return [], []
    gone, _ = encode(table.take(pa.array(list(former))), encoding)
    return [replace(gone, change=np.array(list(former.values())))], settled


def _identities(rows: pa.Table, time: NDArray[np.int64], encoding: Encoding) -> dict[int, tuple[int, bytes, int]]:
    """Time, key and group of the rows that may share them with others."""
    keys = canonical(keys_of(plain_types(rows.combine_chunks()), encoding), signed_zero=True)
    numbers = np.empty(len(rows), np.int64)
    key_numbers(keys.offsets, keys.data, numbers)
    # Few that differ have the same number.
    _, same, counts = np.unique(numbers ^ (time * ODD), return_inverse=True, return_counts=True)
    some = np.flatnonzero(counts[same] > 1)
    groups = Labels.of([rows[c] for c in encoding.partition_by]).codes if encoding.partition_by else np.zeros(len(rows))
    own = zip(time[some].tolist(), keys.take(some).to_list(), groups[some].tolist(), strict=True)
    return dict(zip(some.tolist(), own, strict=True))


def _bare(table: pa.Table, time: NDArray[np.int64], encoding: Encoding, like: Objects | None) -> Objects:
    """Rows that withdraw others, without values of their own: they have those of any row, which mean nothing."""
    n = len(time)
    if like is None:
        d = encoding.dimensions or 1
        like = Objects(
            form=encoding.held_as.form,
            time=np.zeros(1, np.int64),
            key=canonical(keys_of(table.slice(0, 1), encoding), signed_zero=True),
            mass=np.ones(1),
            centre=np.zeros((1, d)),
            spread=np.empty((1, 0)),
            reach=np.zeros(1),
            radius=np.zeros(1),
            covariance=np.empty((1, 0)),
        )
    filler = like.take(np.zeros(n, np.int64))
    keys = canonical(keys_of(table, encoding), signed_zero=True)
    if encoding.behind:
        nothing_carried = [pa.nulls(n, kind) for _, kind in encoding.behind]
        keys = with_carried(keys, filler.centre, nothing_carried)
    group = Labels.of([table[c] for c in encoding.partition_by]) if encoding.partition_by else None
    return replace(filler, time=time, key=keys, group=group, change=np.full(n, WITHDRAWS_ANY))
