"""The format of batches: nothing is lost, equal batches have equal bytes, damage is an error, old blocks are read."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.engines.spark import codec, readings_codec, tables
from appulse.errors import StateError
from appulse.model.codec import pack_batch, pack_columns, unpack_batch, unpack_columns
from appulse.model.strings import Bytes, Labels
from tests.model.test_batch import Table, at_places, listed, made, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parent.parent / "fixtures"
READ: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "objects": (codec.unpack, lambda found: codec.pack(found[2], found[0], found[1])),
    "floors": (codec.unpack_floors, codec.pack_floors),
    "presence": (codec.unpack_presence, codec.pack_presence),
    "readings": (readings_codec.unpack_readings, readings_codec.pack_readings),
    "arrays": (codec.unpack_arrays, codec.pack_arrays),
    "table": (tables.unpacked, tables.packed),
}
#: Blocks with bytes of Arrow's own, which may differ from version to version.
OF_ARROW = {"readings/full", "table/some"}


def blocks(generation: int) -> dict[str, bytes]:
    kept = json.loads((FIXTURES / f"blocks-{generation}.json").read_text())
    return {name: b64decode(text) for name, text in kept.items()}


def test_blocks_of_every_format_are_read() -> None:
    """Blocks of 1 are those in checkpoints of format 3: what they hold, packed again, are the blocks of today."""
    old, today = blocks(1), blocks(2)
    assert old.keys() == today.keys()
    for name, block in today.items():
        read, pack = READ[name.partition("/")[0]]
        if name not in OF_ARROW:
            assert pack(read(block)) == block, name
            assert pack(read(old[name])) == block, name


@pytest.mark.parametrize("generation", [1, 2])
def test_what_kept_blocks_hold(generation: int) -> None:
    read = {name: READ[name.partition("/")[0]][0](block) for name, block in blocks(generation).items()}
    stream, lane, objects = read["objects/samples"]
    assert (stream, lane, objects.key.to_list()) == (1, 2, [b"a", b"bcd", b"e", b"fg"])
    assert objects.first.tolist() == [0, 2, 3, 6, 7]
    assert objects.samples.tolist() == [0.1, 2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 8.0, 1.0, 7.5, 9.0, 1.0, 0.0, 0.0]
    assert objects.weights.tolist() == [0.5, 0.25, 1.0, 0.1, 0.2, 0.3, 0.5]
    numbered = read["objects/numbered"][2]
    assert (numbered.number.tolist(), numbered.frame.tolist()) == ([0, 1, 2, 3], [[0, 3], [6, 9], [12, 15], [18, 21]])
    assert [numbered.group.values[code][4:] for code in numbered.group.codes] == [b"u", b"v", b"u", b"w"]
    assert read["presence/grouped"].exist.offsets.tolist() == [0, 2, 2, 5]
    assert read["presence/alone"].group is None
    readings = read["readings/full"]
    assert (readings.key.tolist(), readings.length.tolist()) == ([0, 7, 14], [100, 101, 102])
    assert readings.carry.to_pydict() == {"note": ["x", None, "z"]}
    assert [read["readings/words"].label[i] for i in read["readings/words"].bits] == [b"ho", b"hi", b"ho"]
    assert read["arrays/some"]["none"].shape == (0, 3)
    assert read["table/some"].to_pydict() == {"a": [1, 2, None], "b": ["x", "y", "z"]}


@given(rows_of(), st.booleans())
def test_a_batch_comes_back_as_it_was(rows: list[Any], copied: bool) -> None:
    batch = made(rows)
    block = pack_batch("rows", batch, (3, -1))
    back = unpack_batch("rows", Table, block, copied=copied)
    assert listed(back) == listed(batch)
    assert unpack_columns("rows", block)[1] == (3, -1)
    for name in ("number", "wide", "weight"):
        assert getattr(back, name).dtype == getattr(batch, name).dtype
        assert getattr(back, name).shape == getattr(batch, name).shape
    assert pack_batch("rows", back, (3, -1)) == block


@given(rows_of(least=1), st.data())
def test_bytes_do_not_depend_on_how_a_batch_came_about(rows: list[Any], data: st.DataObject) -> None:
    whole = made(rows)
    places = at_places(data, rows)
    again = Table.concat([whole, made(rows[::-1]), whole]).take(places)
    assert pack_batch("rows", again) == pack_batch("rows", made([(rows + rows[::-1] + rows)[i] for i in places]))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [whole.slice(0, cut), whole.slice(cut, len(rows))]
    assert pack_batch("rows", Table.concat(parts)) == pack_batch("rows", whole)


@given(rows_of(), st.data())
def test_damage_is_an_error(rows: list[Any], data: st.DataObject) -> None:
    block = pack_batch("rows", made(rows))
    cut = data.draw(st.integers(0, len(block) - 1))
    with pytest.raises(StateError, match=r"appulse|checkpoint"):
        unpack_columns("rows", block[:cut])
    bit = data.draw(st.integers(0, 8 * len(block) - 1))
    flipped = bytearray(block)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StateError, match=r"appulse|checkpoint"):
        unpack_columns("rows", bytes(flipped))


def test_other_blocks_are_an_error() -> None:
    with pytest.raises(StateError, match="A block holds rows where floors were expected"):
        codec.unpack_floors(pack_columns("rows", {}))


def test_columns_of_one_value_take_the_room_of_one() -> None:
    n = 10_000
    same = {"mass": np.ones(n), "radius": np.zeros((n, 3)), "key": Bytes.fixed(np.zeros((n, 0), np.uint8))}
    labels = Labels(np.zeros(n, np.int32), (b"unused", b"used"))
    block = pack_columns("arrays", {**same, "group": replace_codes(labels, 1)})
    assert len(block) < 400
    back, _ = unpack_columns("arrays", block)
    assert [(back[name] == same[name]).all() for name in ("mass", "radius")] == [True, True]
    assert (len(back["key"]), back["group"].values) == (n, (b"used",))
    signs = unpack_columns("arrays", pack_columns("arrays", {"x": np.array([0.0, -0.0, 0.0])}))[0]["x"]
    assert np.signbit(signs).tolist() == [False, True, False]


def replace_codes(labels: Labels, code: int) -> Labels:
    return Labels(np.full(len(labels), code, np.int32), labels.values)


def test_what_cannot_be_packed_is_an_error() -> None:
    with pytest.raises(TypeError, match="A column of dict cannot be packed"):
        pack_columns("arrays", {"a": {}})
