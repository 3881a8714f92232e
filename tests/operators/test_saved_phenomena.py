"""Phenomena that go on from a state that was saved."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import appulse as ap
from appulse.engines import saving


def test_values_without_labels_have_none_in_a_state_that_was_saved() -> None:
    """Bins and numbers need none: a group whose readings are over stands on."""
    rows = pa.table({"mote": [1, 2, 1, 1], "time": [0, 0, 1, 9], "value": [0.7] * 4, "room": ["a", "a", "b", "b"]})
    stream = ap.Stream(None, key="mote", time="time", value="value", partition_by="room", idle_after=20)
    asked: dict[str, Any] = {"resolution": 0.5, "strength": 1, "span": 5}
    found = []
    for saved in (False, True):
        call: Any = ap.Phenomena(stream, **asked)
        events = call.push(rows.slice(0, 3)).to_pylist()
        if saved:
            saving.restore(call.engine, saving.snapshot(call.engine))
        found.append([*events, *call.push(rows.slice(3)).to_pylist(), *call.drain().to_pylist()])
    assert found[0] == found[1]
    assert len(found[0]) > 0
