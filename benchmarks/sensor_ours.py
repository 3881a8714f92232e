"""Our sensor join as a contestant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.model.readings import Readings as Rows
from appulse.model.strings import Bytes
from appulse.operators.sensor_join import SensorJoin, SensorPlan
from benchmarks.mjoin import Factorised

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Ours:
    """The operator, as engines run it; sensors are byte strings, as they come from the door."""

    def __init__(self, window: int) -> None:
        self._join = SensorJoin(SensorPlan(window, pa.int64()))

    def push(self, time: Ints, sensor: Ints, bins: Ints) -> list[Any]:
        """Join readings, in order, with those before them."""
        names = Bytes.fixed(sensor.astype(">u8").view(np.uint8).reshape(-1, 8))
        return self._join.push([Rows(time, names, bins, bins)])

    def factorised(self, found: list[Any]) -> Factorised:
        """As the others tell it."""
        known = self._join.sensors.strings.slice(1, len(self._join.sensors)).data.view(">u8")
        place = np.concatenate([[-1], known.astype(np.int64)])
        groups = np.cumsum([0, *(len(part.sensor) for part in found)])
        times = np.cumsum([0, *(len(part.time) for part in found)])
        return Factorised(
            np.concatenate([part.probe for part in found]),
            np.concatenate([*(p.first[:-1] + g for p, g in zip(found, groups, strict=False)), groups[-1:]]),
            place[np.concatenate([part.sensor for part in found])],
            np.concatenate([*(p.begin[:-1] + t for p, t in zip(found, times, strict=False)), times[-1:]]),
            np.concatenate([part.time for part in found]),
        )
