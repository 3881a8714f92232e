"""What a job in process keeps of the files that it has read: little at a time, and right, whatever crashes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import appulse as ap
from appulse import jobs
from appulse.connect import ledger
from appulse.connect.folder import Folder, Named
from appulse.connect.listing import Listing
from appulse.jobs import saver as saving
from appulse.jobs.resident import Resident, Step
from tests.cli.test_files_once import MATCHING, keys, make, put
from tests.cli.test_resident_checkpoint import CrashError
from tests.cli.test_resident_damage import DAMAGES

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.connect.files import Rows

MANY = "max_files_per_trigger = 1"
CALLS = {
    "matching": MATCHING,
    "join": '[self_join]\nepsilon = 5.0\nprobability = 1.0\nwindow = "3 seconds"',
    "aggregate": '[window_aggregate]\nwindow = "5 seconds"\naggregates = { x = "mean" }',
}


def fill(folder: Path, numbers: range) -> None:
    for number in numbers:
        os.utime(put(folder, number), (1.7e9 + number, 1.7e9 + number))


def run(folder: Path, *, drain: bool = False) -> None:
    Resident(jobs.load(folder / "job.toml"), commit_every=0.0).run(once=not drain, drain=drain)


def answers(folder: Path) -> list[str]:
    return sorted(line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is held is saved with each write, and names are written anew after a few."""
    monkeypatch.setattr(saving, "_LEAST_LOG", 0)
    monkeypatch.setattr(saving, "_TIMES", 0)
    monkeypatch.setattr(ledger, "_LEAST", 2)
    monkeypatch.setattr(ledger, "_TIMES", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("call", CALLS)
def test_a_crash_anywhere_reads_each_file_once(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash is before a file is put in place, behind that, or while names are added; files go, and others come."""
    for name in ("whole", "broken"):
        fill(make(tmp_path / name, more=MANY, call=CALLS[call]), range(20))
    run(tmp_path / "whole")
    replace, write = Path.replace, ledger.Addition.write
    chance, left = np.random.default_rng(len(call)), [0]

    def breaks() -> bool:
        left[0] -= 1
        return left[0] == 0

    def moved(file: Path, to: Path) -> Path:
        now = breaks()
        if now and chance.random() < 0.5:
            raise CrashError
        found = replace(file, to)
        if now:
            raise CrashError
        return found

    def partly(addition: ledger.Addition) -> None:
        now = breaks()
        half = addition.data[: int(chance.integers(len(addition.data) + 1))]
        write(addition._replace(data=half) if now else addition)
        if now:
            raise CrashError

    monkeypatch.setattr(Path, "replace", moved)
    monkeypatch.setattr(ledger.Addition, "write", partly)
    crashes = 0
    while crashes < 200:
        left[0] = int(chance.integers(2, 12))
        try:
            run(tmp_path / "broken")
            break
        except CrashError:
            crashes += 1
    monkeypatch.undo()
    assert crashes > 3
    for name in ("whole", "broken"):
        for number in range(0, 20, 3):
            (tmp_path / name / "in" / f"{number}.parquet").unlink()
        fill(tmp_path / name, range(20, 25))
        run(tmp_path / name, drain=True)
    assert answers(tmp_path / "broken") == answers(tmp_path / "whole")
    assert len(answers(tmp_path / "whole")) > 5


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_names_are_found(tmp_path: Path, damage: str) -> None:
    fill(make(tmp_path / "job", more=MANY), range(7))
    run(tmp_path / "job")
    (names,) = (tmp_path / "job" / "state" / "names").iterdir()
    DAMAGES[damage](names)
    with pytest.raises(ap.StateError, match=rf"{names} (is damaged|cannot be read).* from its newest copy"):
        run(tmp_path / "job")


@pytest.mark.usefixtures("small")
def test_two_sources_keep_their_names_apart(tmp_path: Path) -> None:
    folder = make(tmp_path / "job", more=MANY, call="")
    text = (folder / "job.toml").read_text()
    source = text[text.index("[sources.vans]") : text.index("[sink]")]
    other = source.replace("vans", "cars").replace('path = "in"', 'path = "more/in"')
    join = '[similarity_join]\nepsilon = 1\nprobability = 1.0\nwindow = "1 hour"\n'
    (folder / "job.toml").write_text(text.replace(source, source + other + join))
    (folder / "more" / "in").mkdir(parents=True)
    fill(folder, range(5))
    fill(folder / "more", range(3))
    for first in (5, 6, 7):
        run(folder)
        fill(folder, range(first, first + 1))
    run(folder)
    fill(folder / "more", range(3, 4))
    run(folder)
    assert len(list((folder / "state" / "names").iterdir())) == 2
    assert len(answers(folder)) == 8 * 4


def test_a_write_has_the_names_of_its_own_files_alone(tmp_path: Path) -> None:
    folder = make(tmp_path / "job")
    fill(folder, range(400))
    run(folder)
    before = (folder / "state" / "names" / "0000000000").stat().st_size
    put(folder, 400)
    run(folder)
    (record,) = (folder / "state" / "log").iterdir()
    assert record.stat().st_size < 8_000
    assert (folder / "state" / "names" / "0000000000").stat().st_size - before < 40
    assert len(keys(folder)) == 401


def unread(files: list[str], _: pa.Schema | None, __: bool) -> Rows:
    raise AssertionError(files)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often all names were listed."""
    found, names = [0], Listing.names

    def counted(self: Listing) -> set[str]:
        found[0] += 1
        return names(self)

    monkeypatch.setattr(Listing, "names", counted)
    return found


def test_files_that_were_read_are_not_looked_at_again(
    tmp_path: Path, listed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(make(tmp_path / "job"), range(50))
    place = str(tmp_path / "job" / "in")
    time.sleep(0.2)
    folder = Folder("vans", Named("in", place, place), unread, None)
    names = {f"{number}.parquet": 0 for number in range(50)}
    folder.begin({"vans": {"path": "in", "place": place, "all": False, "names": names}})
    seen, stat = [0], Path.stat

    def counted(file: Path, **options: Any) -> os.stat_result:
        seen[0] += file.suffix == ".parquet"
        return stat(file, **options)

    monkeypatch.setattr(Path, "stat", counted)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert not folder.take(0.05)
    assert listed == [1]
    assert seen == [0]


def test_a_file_that_grows_after_it_was_read_is_warned_of_once(tmp_path: Path) -> None:
    """Its new rows are not read; files that come later are."""
    folder = make(tmp_path / "job")
    text = (folder / "job.toml").read_text().replace('"parquet"', '"csv"')
    (folder / "job.toml").write_text(text)
    files = [folder / "in" / f"{name}.csv" for name in "abc"]
    for number, file in enumerate(files[:2]):
        file.write_text(f"{number},{number}.0,1.0,1.0\n")
    job = Resident(jobs.load(folder / "job.toml"), commit_every=0.0)
    seen, stop = [0], Event()

    def step(_: Step) -> None:
        """The files grow once they were read, and another one comes once that was seen."""
        seen[0] += 1
        if seen[0] == 1:
            for file in files[:2]:
                with file.open("a") as added:
                    added.write("10,10.0,1.0,1.0\n")
            files[2].write_text("2,2.0,1.0,1.0\n")
        elif seen[0] == 2:
            put_csv(folder, 3)
        else:
            stop.set()

    job.on_step = step
    with pytest.warns(ap.GrownFile) as caught:
        job.run(stop)
    said = sorted(str(one.message) for one in caught)
    assert said == [
        f"{file} has grown since it was read; a file is read once. Write new rows to a new file." for file in files[:2]
    ]
    assert keys(folder) == [0, 1, 2, 3]


def put_csv(folder: Path, number: int) -> None:
    (folder / "in" / f"{number}.csv").write_text(f"{number},{number}.0,1.0,1.0\n")


def test_a_list_serves_several_writes(tmp_path: Path, listed: list[int]) -> None:
    fill(make(tmp_path / "job", more=MANY), range(60))
    time.sleep(0.2)
    run(tmp_path / "job")
    assert len(keys(tmp_path / "job")) == 60
    assert listed[0] < 4


def test_a_folder_whose_time_says_nothing_is_listed_all_the_same(tmp_path: Path) -> None:
    place = make(tmp_path / "job") / "in"
    folder = Folder("vans", Named("in", str(place), str(place)), unread, None)
    os.utime(place, (1e9, 1e9))
    assert not folder.take(0.0)
    put(tmp_path / "job", 1)
    os.utime(place, (1e9, 1e9))
    folder._look()
    assert not folder.pending
    folder._whole = 0.0  # some seconds later
    folder._look()
    assert folder.pending
