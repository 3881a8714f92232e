"""Numbers for names, millions of them: as `labels`, without a Python object a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.strings import KnownNames, number_names, refill_names
from appulse.model.strings import Bytes

if TYPE_CHECKING:
    from appulse.kernels.arrays import Ints


class Names:
    """Numbers for byte strings, in order of arrival from 1 on; 0 is nobody's."""

    def __init__(self, room: int = 128) -> None:  # at first; a power of two
        self._table = np.full(2 * room, -1, np.int32)
        self._hashes = np.zeros(room, np.uint64)
        self._offsets = np.zeros(room + 1, np.int64)
        self._data = np.empty(16 * room, np.uint8)
        self._many = 1  # the string of nobody has no bytes, and is not in the table

    def __len__(self) -> int:
        return self._many

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._hashes.nbytes + self._offsets.nbytes + self._data.nbytes

    @property
    def strings(self) -> Bytes:
        """All names, by number."""
        offsets = self._offsets[: self._many + 1]
        return Bytes(offsets, self._data[: offsets[-1]])

    def of(self, names: Bytes) -> Ints:
        """The number of each name; new ones are numbered as they come."""
        out = np.empty(len(names), np.int64)
        at = 0
        while True:
            self._many, at = map(int, self._number(names, at, out))
            if at == len(names):
                return out
            self._grow(int(names.offsets[at + 1] - names.offsets[at]))

    def _number(self, names: Bytes, at: int, out: Ints) -> tuple[int, int]:
        known = KnownNames(self._table, self._hashes, self._offsets, self._data)
        return number_names(names.offsets, names.data, at, known, self._many, out)

    def _grow(self, more: int) -> None:
        """Twice the room, and for a name of so many bytes."""
        n = len(self._hashes)
        self._hashes = np.concatenate([self._hashes, np.zeros(n, np.uint64)])
        self._offsets = np.concatenate([self._offsets, np.zeros(n, np.int64)])
        self._data = np.concatenate([self._data, np.empty(len(self._data) + more, np.uint8)])
        self._table = np.full(4 * n, -1, np.int32)
        refill_names(self._table, self._hashes, self._many)
