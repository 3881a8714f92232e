"""Byte strings in flat arrays: gathering and comparing without Python objects."""

from __future__ import annotations

import numpy as np

from appulse.kernels.jit import kernel


@kernel
def gather(offsets, data, index):
    """The byte strings at ``index``, as new (offsets, data)."""
    n = index.shape[0]
    out_offsets = np.empty(n + 1, np.int64)
    out_offsets[0] = 0
    for i in range(n):
        at = index[i]
        out_offsets[i + 1] = out_offsets[i] + offsets[at + 1] - offsets[at]
    out = np.empty(out_offsets[n], np.uint8)
    for i in range(n):
        begin = offsets[index[i]]
        to = out_offsets[i]
        for k in range(out_offsets[i + 1] - to):
            out[to + k] = data[begin + k]
    return out_offsets, out


@kernel
def gather_runs(begin, length, base, data, index):
    """The runs ``data[begin[i] - base :][: length[i]]`` at ``index``, as (offsets, data)."""
    n = index.shape[0]
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        offsets[i + 1] = offsets[i] + length[index[i]]
    out = np.empty(offsets[n], data.dtype)
    for i in range(n):
        at = begin[index[i]] - base
        to = offsets[i]
        for k in range(length[index[i]]):
            out[to + k] = data[at + k]
    return offsets, out


@kernel
def hash_rows(offsets, data, extra):
    """A 64-bit hash of each byte string and its number in ``extra`` (FNV-1a, then a final mix)."""
    n = offsets.shape[0] - 1
    out = np.empty(n, np.uint64)
    for i in range(n):
        h = np.uint64(0xCBF29CE484222325)
        for k in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[k])) * np.uint64(0x100000001B3)
        h ^= np.uint64(extra[i])
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        out[i] = h ^ (h >> np.uint64(33))
    return out


@kernel
def _compare(left, at, n, right, other, m):
    for k in range(min(n, m)):
        if left[at + k] != right[other + k]:
            return -1 if left[at + k] < right[other + k] else 1
    return np.sign(n - m)


@kernel
def sorts_after(
    left,
    right,
    l_key,
    l_key_begin,
    l_key_length,
    l_key_base,
    l_centre,
    l_samples,
    l_samples_begin,
    l_samples_length,
    l_samples_base,
    r_key,
    r_key_begin,
    r_key_length,
    r_key_base,
    r_centre,
    r_samples,
    r_samples_begin,
    r_samples_length,
    r_samples_base,
):
    """Whether row ``left[i]`` sorts after row ``right[i]``: by key bytes, then by centre, then by samples."""
    out = np.zeros(left.shape[0], np.bool_)
    for i in range(left.shape[0]):
        a = left[i]
        b = right[i]
        at = l_key_begin[a] - l_key_base
        other = r_key_begin[b] - r_key_base
        order = _compare(l_key, at, l_key_length[a], r_key, other, r_key_length[b])
        for k in range(l_centre.shape[1]):
            if order == 0 and l_centre[a, k] != r_centre[b, k]:
                order = -1 if l_centre[a, k] < r_centre[b, k] else 1
        if order == 0 and l_samples_begin.shape[0] > 0:
            at = l_samples_begin[a] - l_samples_base
            other = r_samples_begin[b] - r_samples_base
            order = _compare(l_samples, at, l_samples_length[a], r_samples, other, r_samples_length[b])
        out[i] = order > 0
    return out
