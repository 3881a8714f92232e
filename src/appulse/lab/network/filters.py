"""Filters of live values that heads publish: who has no such value need not be asked, and nothing is lost.

A filter may say yes where it should say no, never the other way round. What keeps it exact in time is the simulation:
a probe waits until a version of every head's filter has come that covers its own time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Hashes, Ints

KEY_BYTES = 8


class Filter(Protocol):
    """One kind of filter."""

    def publish(self, live: Flags, keys: Hashes, before: Flags) -> tuple[Flags, int]:
        """What the filter says of each key, and its bytes; ``before`` is what was live at the last publication."""
        ...


@dataclass(frozen=True)
class KeySets:
    """The live keys themselves: what came and what went since the last time."""

    def publish(self, live: Flags, keys: Hashes, before: Flags) -> tuple[Flags, int]:  # noqa: ARG002
        """Exact."""
        return live, KEY_BYTES * int((live != before).sum())


@dataclass(frozen=True)
class Bloom:
    """A Bloom filter; the head itself counts, to take keys out (a counting Bloom filter), and sends the bits."""

    bits_per_key: int = 10
    hashes: int = 7

    def publish(self, live: Flags, keys: Hashes, before: Flags) -> tuple[Flags, int]:  # noqa: ARG002
        """Yes where all bits are set."""
        n = max(8, self.bits_per_key * int(live.sum()))
        bits = np.zeros(n, bool)
        first, second = _mixed(keys, 1), _mixed(keys, 2) | np.uint64(1)
        at = (first[:, None] + np.arange(self.hashes, dtype=np.uint64) * second[:, None]) % np.uint64(n)
        bits[at[live]] = True
        return bits[at].all(axis=1), -(-n // 8)


@dataclass(frozen=True)
class Quotient:
    """A quotient filter (Bender et al. 2012): fingerprints, of which the quotient is the place of the remainder.

    Only its size and what it says are modelled: 2^q slots of remainder + 3 bits, at most three quarters full.
    """

    remainder: int = 8

    def publish(self, live: Flags, keys: Hashes, before: Flags) -> tuple[Flags, int]:  # noqa: ARG002
        """Yes where a live key has the same fingerprint."""
        quotient = max(3, int(np.ceil(np.log2(max(int(live.sum()), 1) / 0.75))))
        fingerprint = _mixed(keys, 3) >> np.uint64(64 - quotient - self.remainder)
        size = (1 << quotient) * (self.remainder + 3)
        return np.isin(fingerprint, fingerprint[live]), -(-size // 8)


@dataclass(frozen=True)
class Filters:
    """Every head publishes a filter to all others every ``every`` rounds."""

    kind: Filter
    every: int = 10


def _mixed(keys: Hashes, seed: int) -> Hashes:
    """All bits of the keys over all bits (splitmix64)."""
    mixed = keys + np.uint64(seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def keys_of(bins: Ints) -> tuple[Hashes, Ints]:
    """The distinct bins as keys, and the place of each bin among them."""
    distinct, code = np.unique(bins, return_inverse=True)
    return distinct.astype(np.uint64), code
