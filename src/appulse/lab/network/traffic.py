"""Messages and their bytes, hop by hop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from appulse.kernels.arrays import Ints

KINDS = ("reports", "probes", "results", "notes", "filters")


@dataclass(frozen=True)
class Sizes:
    """Bytes of a message's parts: header, reading (value, time, sensor), head, a matched sensor, a matched time.

    ``null`` is that of each stream without a match, where rows are padded as those of outer joins are.
    """

    header: int = 16
    reading: int = 20
    head: int = 2
    sensor: int = 6
    time: int = 8
    null: int = 0


@dataclass
class Traffic:
    """What was sent, by kind: messages, and bytes times hops."""

    messages: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def send(self, kind: str, sizes: Ints, hops: Ints) -> None:
        """Messages of these sizes over so many hops."""
        self.messages[kind] += len(sizes)
        self.bytes[kind] += int((sizes * hops).sum())

    @property
    def between_heads(self) -> int:
        """All bytes but the reports of readings to their heads, which every way of joining has."""
        return sum(self.bytes.values()) - self.bytes["reports"]


@dataclass
class Parcels:
    """What each probe has on it: groups and times that it found, streams of heads that it has been at."""

    sizes: Sizes
    groups: Ints
    times: Ints
    streams: Ints

    @staticmethod
    def of(n: int, sizes: Sizes) -> Parcels:
        """Of ``n`` readings, with nothing found yet."""
        return Parcels(sizes, *(np.zeros(n, np.int64) for _ in range(3)))

    def found(self, reading: Ints, sensor: Ints) -> None:
        """Matches come on, each head's in one go."""
        np.add.at(self.times, reading, 1)
        sensors = int(sensor.max()) + 1
        np.add.at(self.groups, np.unique(reading * sensors + sensor) // sensors, 1)

    def bytes_of(self, numbers: Ints, rest: Ints | int) -> Ints:
        """Bytes of the messages of readings, with so many heads still to ask."""
        s, groups = self.sizes, self.groups[numbers]
        fixed = s.header + s.reading + s.head * (1 + rest)
        padding = s.null * (self.streams[numbers] - groups)
        total: Ints = fixed + s.sensor * groups + s.time * self.times[numbers] + padding
        return total
