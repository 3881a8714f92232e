"""Kernels of the contestants of the sensor join: one ring of readings, and what points into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Ints, Whole

    Small = NDArray[np.int32]

TAIL, HEAD = range(2)
PROBES, GROUPS, TIMES = range(3)


class Ring(NamedTuple):
    """Readings in order of arrival; ``before`` is the one before it in its list."""

    counts: Ints  # (2,)
    time: Ints  # (capacity,), as all
    bin: Ints
    sensor: Small
    before: Small


class Out(NamedTuple):
    """Answers while they grow."""

    counts: Ints  # (3,)
    probe: Ints
    first: Ints
    sensor: Ints
    begin: Ints
    time: Ints


@exact_kernel
def hash_of(bin_: Whole) -> Whole:
    """Mixes all bits of a bin into the lower ones."""
    mixed = np.uint64(bin_) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) >> np.uint64(1))


@exact_kernel
def expire(ring: Ring, before: Whole) -> None:
    """Move the tail past what is older than ``before``."""
    mask = len(ring.time) - 1
    while ring.counts[TAIL] < ring.counts[HEAD] and ring.time[ring.counts[TAIL] & mask] < before:
        ring.counts[TAIL] += 1


@exact_kernel
def insert(ring: Ring, time: Whole, sensor: Whole, bin_: Whole, before: Whole) -> Whole:
    """Append a reading; its number."""
    number: np.int64 = ring.counts[HEAD]
    at = number & (len(ring.time) - 1)
    ring.time[at], ring.sensor[at], ring.bin[at], ring.before[at] = time, sensor, bin_, before
    ring.counts[HEAD] = number + 1
    return number


@exact_kernel
def newest(ring: Ring, head: Whole, bin_: Whole, since: Whole) -> Whole:
    """The newest reading of a list with this bin that is not older than ``since``; -1: none."""
    mask, tail = len(ring.time) - 1, ring.counts[TAIL]
    while head >= tail:
        at = head & mask
        if ring.time[at] < since:
            return -1
        if ring.bin[at] == bin_:
            return head
        head = ring.before[at]
    return -1


@exact_kernel
def tell(ring: Ring, out: Out, i: Whole, now: Whole, bin_: Whole, found: Small, many: int, window: Ints) -> bool:
    """Write the answer of reading i, whose newest match in each stream is found; False where the room is full."""
    if many == 0:
        return True
    counts, mask, tail = out.counts, len(ring.time) - 1, ring.counts[TAIL]
    if counts[PROBES] + 2 > len(out.first) or counts[GROUPS] + many + 1 > len(out.begin):
        return False
    _descending(found, many)
    at = counts[TIMES]
    for k in range(many):
        head = np.int64(found[k])
        sensor = ring.sensor[head & mask]
        since = now - window[sensor]
        out.sensor[counts[GROUPS] + k], out.begin[counts[GROUPS] + k] = sensor, at
        while head >= tail and ring.time[head & mask] >= since:
            if ring.bin[head & mask] == bin_:
                if at == len(out.time):
                    return False
                out.time[at] = ring.time[head & mask]
                at += 1
            head = ring.before[head & mask]
    out.probe[counts[PROBES]], out.first[counts[PROBES]] = i, counts[GROUPS]
    counts[PROBES] += 1
    counts[GROUPS] += many
    counts[TIMES] = at
    return True


@exact_kernel
def _descending(found: Small, many: int) -> None:
    """Numbers of readings are in order of time and sensor: so the newest first, at one time the greater sensor."""
    if many > 48:
        found[:many] = np.sort(found[:many])[::-1]
        return
    for k in range(1, many):
        number, j = found[k], k
        while j > 0 and found[j - 1] < number:
            found[j] = found[j - 1]
            j -= 1
        found[j] = number


@exact_kernel
def mjoin(
    ring: Ring, heads: Small, window: Ints, time: Ints, sensor: Ints, bins: Ints, begin: Whole, out: Out, found: Small
) -> Whole:
    """From reading ``begin`` on; where it came to. ``heads`` is (streams, buckets)."""
    streams, most, span = heads.shape[0], heads.shape[1] - 1, window.max()
    for i in range(begin, len(time)):
        now, own, bin_ = time[i], sensor[i], bins[i]
        expire(ring, now - span)
        tail, many, bucket = ring.counts[TAIL], 0, hash_of(bin_) & most
        for stream in range(streams):
            if heads[stream, bucket] >= tail and stream != own:
                number = newest(ring, heads[stream, bucket], bin_, now - window[stream])
                if number >= 0:
                    found[many] = number
                    many += 1
        if not tell(ring, out, i, now, bin_, found, many, window):
            return i
        heads[own, bucket] = insert(ring, now, own, bin_, heads[own, bucket])
    return len(time)


@exact_kernel
def clusters_mjoin(
    ring: Ring,
    heads: Small,
    window: Ints,
    cluster: Ints,
    members: Ints,
    bounds: Ints,
    met: Ints,
    time: Ints,
    sensor: Ints,
    bins: Ints,
    begin: Whole,
    out: Out,
    found: Small,
) -> Whole:
    """As `mjoin`, cluster by cluster: cluster c has the streams ``members[bounds[c]:bounds[c + 1]]``."""
    most, span, order = heads.shape[1] - 1, window.max(), np.argsort(-met)
    for i in range(begin, len(time)):
        now, own, bin_ = time[i], sensor[i], bins[i]
        expire(ring, now - span)
        if ring.counts[HEAD] & 1023 == 0:
            order = np.argsort(-met)
        tail, many, bucket = ring.counts[TAIL], 0, hash_of(bin_) & most
        for k in range(-1, len(order)):
            c = cluster[own] if k < 0 else order[k]
            if k >= 0 and c == cluster[own]:
                continue
            before = many
            for j in range(bounds[c], bounds[c + 1]):
                stream = members[j]
                if heads[stream, bucket] >= tail and stream != own:
                    number = newest(ring, heads[stream, bucket], bin_, now - window[stream])
                    if number >= 0:
                        found[many] = number
                        many += 1
            met[c] += many - before
        if not tell(ring, out, i, now, bin_, found, many, window):
            return i
        heads[own, bucket] = insert(ring, now, own, bin_, heads[own, bucket])
    return len(time)


@exact_kernel
def flink(
    ring: Ring, state: Small, window: Ints, time: Ints, sensor: Ints, slots: Ints, begin: Whole, out: Out, found: Small
) -> Whole:
    """``state`` is (join keys, inputs): the newest record of each; ``slots`` tells each reading's key."""
    streams, span = state.shape[1], window.max()
    for i in range(begin, len(time)):
        now, own, slot = time[i], sensor[i], slots[i]
        expire(ring, now - span)
        tail, many, mask = ring.counts[TAIL], 0, len(ring.time) - 1
        row = state[slot]
        for stream in range(streams):
            if (
                row[stream] >= tail
                and stream != own
                and ring.time[np.int64(row[stream]) & mask] >= now - window[stream]
            ):
                found[many] = row[stream]
                many += 1
        if not tell(ring, out, i, now, slot, found, many, window):
            return i
        row[own] = insert(ring, now, own, slot, row[own])
    return len(time)


@exact_kernel
def join_tree(
    ring: Ring,
    nodes: Ints,
    parent: Ints,
    rows: Small,
    window: Ints,
    time: Ints,
    sensor: Ints,
    slots: Ints,
    begin: Whole,
    out: Out,
    found: Small,
) -> Whole:
    """Node n covers the streams ``nodes[n, 0]`` to ``nodes[n, 1]``, its sibling is ``nodes[n, 2]`` (-1: the root).

    Its row of bin slot b begins at ``nodes[n, 3] + b * width`` in ``rows``.
    """
    streams, span = len(window), window.max()
    row = np.empty(streams, np.int32)
    for i in range(begin, len(time)):
        now, own, slot = time[i], sensor[i], slots[i]
        expire(ring, now - span)
        node, number = own, np.int32(ring.counts[HEAD])
        before = rows[nodes[own, 3] + slot]
        row[own] = number
        while nodes[node, 2] >= 0:
            other = nodes[node, 2]
            low, high = nodes[other, 0], nodes[other, 1]
            at = nodes[other, 3] + slot * (high - low)
            row[low:high] = rows[at : at + high - low]
            node = parent[node]
        tail, many, mask = ring.counts[TAIL], 0, len(ring.time) - 1
        for stream in range(streams):
            if (
                row[stream] >= tail
                and stream != own
                and ring.time[np.int64(row[stream]) & mask] >= now - window[stream]
            ):
                found[many] = row[stream]
                many += 1
        if not tell(ring, out, i, now, slot, found, many, window):
            return i
        node = own
        while nodes[node, 2] >= 0:
            low, high = nodes[node, 0], nodes[node, 1]
            at = nodes[node, 3] + slot * (high - low)
            rows[at : at + high - low] = row[low:high]
            node = parent[node]
        insert(ring, now, own, slot, before)
    return len(time)


@exact_kernel
def number(table: Ints, bins: Ints, many: Whole, slots: Ints) -> Whole:
    """The number of each bin into ``slots``; new bins get the next ones, from ``many``. How many there are then."""
    most = len(table) - 1
    for i in range(len(bins)):
        at = hash_of(bins[i]) & most
        while table[at, 1] >= 0 and table[at, 0] != bins[i]:
            at = (at + 1) & most
        if table[at, 1] < 0:
            table[at, 0], table[at, 1] = bins[i], many
            many += 1
        slots[i] = table[at, 1]
    return many
