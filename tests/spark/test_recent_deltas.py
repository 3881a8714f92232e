"""Deltas as files for the other workers of a machine: read where they are those of the log, else left alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from appulse.engines.spark.deltas import RecentDeltas
from appulse.engines.spark.state import Cache, TileState, blocks_of
from tests.helpers.fake_spark import FakeHandle

if TYPE_CHECKING:
    from pathlib import Path


class Blocks:
    """An operator that keeps what it is given."""

    def __init__(self) -> None:
        self.held: list[bytes] = []

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.held))

    def take(self, payload: bytes) -> None:
        self.held += blocks_of(payload)


class Worker:
    """One of several on a machine, each with a cache of its own."""

    def __init__(self, store: dict[str, Any], folder: Path, tile: int = 3) -> None:
        handle: Any = FakeHandle(store)
        self.tile, self.state = tile, TileState(handle, "join", Cache(1 << 30), RecentDeltas(folder))

    def load(self) -> Any:
        return self.state.load(self.tile, Blocks, Blocks.take)[0]

    def step(self, number: int, *, whole: bool = False) -> None:
        cached, block = self.load(), bytes([number]) * (2 << 20)
        if whole:
            cached.operator.held.clear()
        cached.operator.held.append(block)
        self.state.save(self.tile, cached, [block], number, -1, whole=whole)

    @property
    def held(self) -> list[int]:
        return [block[0] for block in self.load().operator.held]

    @property
    def read(self) -> int:
        return self.state.bytes_read


@pytest.fixture
def store() -> dict[str, Any]:
    return {}


@pytest.fixture
def pair(store: dict[str, Any], tmp_path: Path) -> tuple[Worker, Worker]:
    return Worker(store, tmp_path), Worker(store, tmp_path)


def files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: int(path.name.split("-")[0]))


def test_another_worker_reads_no_state(pair: tuple[Worker, Worker]) -> None:
    one, other = pair
    for turn, worker in enumerate((one, one, other, one, other, other, one)):
        worker.step(turn)
        assert worker.read == 0
    assert one.held == other.held == list(range(7))
    assert other.read == 0


def test_a_new_worker_reads_from_the_state_what_is_no_longer_kept(pair: tuple[Worker, Worker], tmp_path: Path) -> None:
    one, new = pair
    for turn in range(11):
        one.step(turn)
    assert [int(path.name.split("-")[0]) for path in files(tmp_path)] == list(range(4, 12))
    assert new.held == list(range(11))
    assert 6 << 20 < new.read < 7 << 20


@pytest.mark.parametrize("spoil", ["cut", "flip", "empty", "foreign", "gone"])
def test_what_is_damaged_is_read_from_the_state(pair: tuple[Worker, Worker], tmp_path: Path, spoil: str) -> None:
    one, other = pair
    for turn in range(3):
        one.step(turn)
    path = files(tmp_path)[1]
    data = path.read_bytes()
    damaged = {
        "cut": data[:-1],
        "flip": data[:500] + bytes([data[500] ^ 4]) + data[501:],
        "empty": b"",
        "foreign": b"PAR1" + data[4:],
    }
    if spoil == "gone":
        path.unlink()
    else:
        path.write_bytes(damaged[spoil])
    assert other.held == [0, 1, 2]
    assert other.read > 2 << 20


def test_an_attempt_that_failed_leaves_a_file_that_nobody_reads(
    pair: tuple[Worker, Worker], store: dict[str, Any], tmp_path: Path
) -> None:
    one, other = pair
    one.step(0)
    before = {name: dict(value) if isinstance(value, dict) else value for name, value in store.items()}
    one.step(1)
    store.clear()
    store.update(before)
    other.step(2)
    assert len(files(tmp_path)) == 3
    assert one.held == other.held == [0, 2]


def test_a_log_that_begins_anew(pair: tuple[Worker, Worker]) -> None:
    one, other = pair
    for turn in range(3):
        one.step(turn)
    assert other.held == [0, 1, 2]
    one.step(3, whole=True)
    one.step(4)
    assert other.held == [3, 4]
    assert other.read == 0


def test_tiles_have_folders_of_their_own(store: dict[str, Any], tmp_path: Path) -> None:
    """Queries that ended leave theirs to those that begin later."""
    Worker(store, tmp_path, 1).step(0)
    (old,) = tmp_path.iterdir()
    Worker({}, tmp_path, 2).step(0)
    assert len(list(tmp_path.iterdir())) == 2
    os.utime(old, (0, 0))
    Worker({}, tmp_path, 3).step(0)
    assert old not in tmp_path.iterdir()
    assert len(list(tmp_path.iterdir())) == 2


def test_what_cannot_be_written_is_left_to_the_log(store: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one, other = Worker(store, tmp_path / "file"), Worker(store, tmp_path / "file")
    one.step(0)
    assert other.held == [0]
    assert other.read > 2 << 20
