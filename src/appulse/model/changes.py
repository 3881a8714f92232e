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
from appulse.model.feeds import net_of
from appulse.model.objects import Objects, contents_of
from appulse.model.strings import Labels
from appulse.model.strings import encode as canonical

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.encoding import Encoding
    from appulse.model.feeds import Net

#: What a row does: it is added; it withdraws a row that has its values, any row of its key and time, or another row
#: than one of its own values; the row of its table that it came in place of; a row of earlier steps, or else one that
#: has its values; another row than one of its own values, or else that one; any row, without waiting for it.
ADDED, WITHDRAWS, WITHDRAWS_ANY, WITHDRAWS_OTHER, WITHDRAWS_FORMER, WITHDRAWS_LIKELY = 1, -1, -2, -3, -4, -5
WITHDRAWS_EARLIER, WITHDRAWS_STANDING = -6, -7
#: A row that a condition leaves out, or that has no good values: withdrawals may mean it all the same. And what
#: withdraws one that has its values, and is left out as well.
LEFT_OUT, WITHDRAWS_LEFT_OUT = 2, -8
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
    undecoded = (
        np.asarray(table[UNDECODED].is_valid()) if UNDECODED in table.column_names else np.zeros(len(does), bool)
    )
    does[undecoded] = _ADD  # a reject of its own, whatever it does
    rows, bad = _Reader(table, does, plain).read(~undecoded)
    return rows, pa.concat_tables([bad, _strange(table, does, given, encoding)])


def removals(words: pa.ChunkedArray) -> Flags:
    """Which rows withdraw others and add none, by their changes."""
    removes: Flags = _codes(chunk(words).cast(pa.string())) == _REMOVE
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
        why.each(lambda i: f"column {encoding.change!r} is {given[int(at[i])].as_py()!r}, wanted 'add' or 'remove'"),
    )
    return rejects_of(table, encoding, defects)


class _Reader:
    """Reads a table of changes, and knows rows by their places in it."""

    def __init__(self, table: pa.Table, does: NDArray[Any], encoding: Encoding) -> None:
        self.does, self.encoding = does, encoding
        self.table = table.append_column(_ROW, pa.array(np.arange(len(table))))
        self.place = np.full(len(table), -1)  # among the objects; -1: the row has no good values
        self.kept = np.zeros(len(table), bool)  # by the conditions of the stream

    def read(self, decoded: Flags) -> tuple[Objects, pa.Table]:
        """The good rows, first those that are added, and the bad ones as rejects."""
        does, defects = self.does, Defects(len(self.does))
        columns = plain_types(self.table.select(self.encoding.columns()).combine_chunks())
        time = check_identity(columns, self.encoding, defects)
        adds, removes, updates = (does == _ADD) | (does == _UPDATE), does == _REMOVE, does == _UPDATE
        added, bad = self._objects(adds, 0)
        withdrawn, _ = self._objects(removes & ~defects.bad, len(added))
        objects = Objects.concat([added, withdrawn]) if len(withdrawn) else added
        known = self.place >= 0
        # A row in place of another that has no good values is a reject, and does nothing more.
        usable = ~defects.bad & decoded & (does != _UNKNOWN) & (known | ~updates)
        net = self._net(columns, time, usable, objects)
        rest = usable.copy()
        rest[list(net.settled)] = False
        former = np.zeros((2, len(does)), bool)
        for i in net.former:
            former[int(i in net.likely), i] = known[i]
        says = [
            (ADDED, adds & self.kept),
            (WITHDRAWS_FORMER, former[0]),
            (WITHDRAWS_LIKELY, former[1]),
            (WITHDRAWS_OTHER, rest & updates),
            (WITHDRAWS, rest & removes & self.kept),
            (WITHDRAWS_LEFT_OUT, rest & removes & known & ~self.kept),
            (LEFT_OUT, usable & adds & known & ~self.kept),
        ]
        bare = [(WITHDRAWS_ANY, rest & removes & ~known), (LEFT_OUT, usable & adds & ~known)]
        valued = [(code, self.place[mask]) for code, mask in says]
        unvalued = [(code, np.flatnonzero(mask)) for code, mask in bare]
        for i, stays in net.outside.items():
            if stays is not None and known[stays]:
                code = WITHDRAWS_OTHER if updates[i] else WITHDRAWS_EARLIER
                valued.append((code, self.place[[stays]]))
            else:
                unvalued.append((WITHDRAWS_STANDING if updates[i] else WITHDRAWS_ANY, np.array([i])))
        rows = objects.take(np.concatenate([at for _, at in valued]))
        parts = [replace(rows, change=np.repeat([code for code, _ in valued], [len(at) for _, at in valued]))]
        at = np.concatenate([own for _, own in unvalued])
        if len(at):
            codes = np.repeat([code for code, _ in unvalued], [len(own) for _, own in unvalued])
            like = objects if len(objects) else None
            parts.append(replace(_bare(columns.take(pa.array(at)), time[at], self.encoding, like), change=codes))
        return Objects.concat(parts), pa.concat_tables([bad, self._refused(columns, removes)])

    def _objects(self, some: Flags, begin: int) -> tuple[Objects, pa.Table]:
        """The objects of some rows, those that conditions leave out last, and the bad rows as rejects."""
        table = self.table.filter(pa.array(some))
        objects, at, kept, bad = with_left_out(table, _ROW, self.encoding)
        self.place[at] = np.arange(begin, begin + len(at))
        self.kept[at[:kept]] = True
        return objects, bad

    def _net(self, columns: pa.Table, time: Ints, usable: Flags, objects: Objects) -> Net:
        """What is left to say of rows that share key and time with others."""
        at = np.flatnonzero(usable)
        found = _identities(columns.take(pa.array(at)), time[at], self.encoding)
        names = dict(zip(at[list(found)].tolist(), found.values(), strict=True)) if found else {}
        removes = {i for i in names if self.does[i] == _REMOVE}
        known = [i for i in names if self.place[i] >= 0]
        compared = any(i in removes for i in known)
        digests = contents_of(objects.take(self.place[known])) if compared else [b""] * len(known)
        updates = {i for i in names if self.does[i] == _UPDATE}
        return net_of(names, updates, removes, dict(zip(known, digests, strict=True)))

    def _refused(self, columns: pa.Table, removes: Flags) -> pa.Table:
        """Withdrawals that do not say of which row, as rejects."""
        some = columns.filter(pa.array(removes))
        defects = Defects(len(some))
        check_identity(some, self.encoding, defects)
        return rejects_of(some, self.encoding, defects)


def with_left_out(table: pa.Table, number: str, encoding: Encoding) -> tuple[Objects, Ints, int, pa.Table]:
    """The objects of good rows, the numbers of these in a column, how many conditions leave, and the rejects.

    Rows that conditions leave out come last.
    """
    good, bad = checked(table, encoding, also=[number])
    objects, at = objects_of(good, encoding), np.asarray(good.table[number])
    if not encoding.where or len(good) == len(table):
        return objects, at, len(at), bad
    others = table.filter(pa.array(~np.isin(np.asarray(table[number]), at)))
    left, _ = checked(others, replace(encoding, where=()), also=[number])
    both = Objects.concat([objects, objects_of(left, encoding)])
    return both, np.append(at, np.asarray(left.table[number])), len(at), bad


def _identities(rows: pa.Table, time: Ints, encoding: Encoding) -> dict[int, tuple[int, bytes, int]]:
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


def _bare(table: pa.Table, time: Ints, encoding: Encoding, like: Objects | None) -> Objects:
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
    return replace(filler, time=time, key=keys, group=group)
