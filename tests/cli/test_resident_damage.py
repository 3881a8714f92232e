"""Checkpoints of jobs in process that were damaged, or that earlier versions wrote: exact answers, or an error."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import appulse as ap
from appulse import jobs
from appulse.connect.recorded import Recorded
from appulse.jobs import saver as saving
from appulse.jobs.resident import Resident
from tests.cli.test_resident import written
from tests.cli.test_resident_checkpoint import CrashError, make, rejects, run

if TYPE_CHECKING:
    from collections.abc import Callable

#: Written by appulse 0.1.0 at commit 74cc5b0e, whose records did not say what is needed: a folder for each operator,
#: with the job, its rows and sinks. Each broke off after the fifth write, those with a state three after that.
ARCHIVE = Path(__file__).parent.parent / "fixtures" / "checkpoints-local-1.tar.gz"
LONG = ("join", "long join", "encounters", "count windows", "queries")


def made(folder: Path, operator: str) -> Any:
    job = make(folder, operator.removeprefix("long "))
    if operator == "long join":  # all rows are needed
        text = job.file.read_text(encoding="utf-8")
        job.file.write_text(text.replace('window = "3 seconds"', 'window = "300 seconds"'), encoding="utf-8")
    return jobs.load(job.file)


def break_off(job: Any, monkeypatch: pytest.MonkeyPatch, *, saved: int = 2, steps: int = 6) -> None:
    """Run some steps, each written, with a state after each of the first ones, and then be gone."""
    seen = [0]

    def step(_: Any) -> None:
        seen[0] += 1
        if seen[0] > saved:
            monkeypatch.setattr(saving, "_LEAST_LOG", 1 << 40)
        if seen[0] >= steps:
            raise CrashError

    with monkeypatch.context() as patch:
        monkeypatch.setattr(saving, "_LEAST_LOG", 0)
        patch.setattr(saving, "_TIMES", 0)
        resident = Resident(job, commit_every=0.0, on_step=step)
        for source in resident.sources:
            assert isinstance(source, Recorded)
            source._rows = 7
        with pytest.raises(CrashError):
            resident.run(once=True)


def flipped(file: Path) -> None:
    given = bytearray(file.read_bytes())
    given[len(given) // 2] ^= 0xFF
    file.write_bytes(given)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flipped,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "emptied": lambda file: file.write_bytes(b""),
    "removed": lambda file: file.unlink(),
}


def restored(kept: Path, folder: Path) -> Any:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    return jobs.load(folder / "job.toml")


def refusal(job: Any) -> str | None:
    """What a job says that does not go on."""
    try:
        run(job)
    except (ap.StateError, ap.CheckpointError) as error:
        return str(error)
    return None


@pytest.fixture
def broken(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job that broke off, beside that of one that never did, ``whole``."""
    run(made(tmp_path / "whole", request.param))
    break_off(made(tmp_path / "broken", request.param), monkeypatch)
    return tmp_path / "broken"


@pytest.mark.parametrize("broken", LONG, indirect=True)
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_row_is_lost_or_doubled_where_a_checkpoint_is_damaged(tmp_path: Path, broken: Path, damage: str) -> None:
    """Each file by itself: a record of the log, a state, what is known of the run."""
    files = [file.relative_to(broken) for file in sorted((broken / "state").rglob("*")) if file.is_file()]
    assert len(files) > 2
    refused = []
    for file in files:
        job = restored(broken, tmp_path / "job")
        if damage != "removed" and not (tmp_path / "job" / file).stat().st_size:
            continue  # the lock
        DAMAGES[damage](tmp_path / "job" / file)
        if (error := refusal(job)) is None:
            assert written(tmp_path / "job" / "out") == written(tmp_path / "whole" / "out"), file
            assert rejects(tmp_path / "job" / "bad") == rejects(tmp_path / "whole" / "bad"), file
        else:
            assert file.name in error or damage == "removed"  # found by what is left, or by the sink
            assert "newest copy" in error
            refused.append(file)
    assert {file.name for file in set(files) - set(refused)} <= {"lock", "call.json", "written"}


@pytest.mark.parametrize("broken", LONG, indirect=True)
def test_a_checkpoint_without_its_records_is_refused(tmp_path: Path, broken: Path) -> None:
    job = restored(broken, tmp_path / "job")
    for folder in ("log", "state"):
        for file in (tmp_path / "job" / "state" / folder).iterdir():
            file.unlink()
    with pytest.raises(ap.StateError, match="has lost its log and its state"):
        run(job)


@pytest.mark.parametrize("broken", ["join"], indirect=True)
def test_records_of_another_run_are_refused(tmp_path: Path, broken: Path) -> None:
    job, about = restored(broken, tmp_path / "job"), tmp_path / "job" / "state" / "serve.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"run": "ffffffff"}))
    with pytest.raises(ap.StateError, match=r"is of the run \w+, and .*serve.json of the run ffffffff"):
        run(job)
    for text in ("[]", '{"run": 7}'):
        about.write_text(text)
        with pytest.raises(ap.StateError, match="has no name of a run"):
            run(job)


@pytest.mark.parametrize("sink", ["out", "bad"])
def test_an_older_copy_of_a_checkpoint_doubles_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    """Files of answers or of rejects say that writes came after it."""
    run(made(tmp_path / "whole", "join"))
    job = made(tmp_path / "job", "join")
    break_off(job, monkeypatch, steps=2)
    shutil.copytree(tmp_path / "job" / "state", tmp_path / "copy")
    run(job)
    shutil.rmtree(tmp_path / "job" / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "job" / "state")
    other = tmp_path / "job" / ("bad" if sink == "out" else "out")
    later = [file for file in other.iterdir() if int(file.stem[-10:]) > 0]
    assert later
    for file in later:
        file.unlink()
    before = {file.name: file.read_bytes() for file in (tmp_path / "job" / sink).iterdir()}
    with pytest.raises(ap.CheckpointError, match=rf"goes on from write 1, and .*{sink} has that and later ones"):
        run(job)
    assert before == {file.name: file.read_bytes() for file in (tmp_path / "job" / sink).iterdir()}
    for file in (tmp_path / "job" / sink).iterdir():
        if int(file.stem[-10:]) > 0:
            file.unlink()
    run(job)
    assert written(tmp_path / "job" / "out") == written(tmp_path / "whole" / "out")
    assert rejects(tmp_path / "job" / "bad") == rejects(tmp_path / "whole" / "bad")


@pytest.mark.parametrize("operator", ["join", "encounters", "aggregate", "queries"])
def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path: Path, operator: str) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    job = jobs.load(tmp_path / operator / "job.toml")
    kept = tmp_path / "kept"
    shutil.copytree(job.file.parent, kept)
    run(job)
    whole = make(tmp_path / "whole", operator)
    shutil.copytree(kept, tmp_path / "whole", dirs_exist_ok=True)
    for name in ("state", "out", "bad"):
        shutil.rmtree(tmp_path / "whole" / name)
    run(whole)
    found, wanted = written(job.file.parent / "out"), written(tmp_path / "whole" / "out")
    assert list(map(_rounded, found)) == list(map(_rounded, wanted))
    # The version before wrote JSON with spaces.
    found, wanted = rejects(job.file.parent / "bad"), rejects(tmp_path / "whole" / "bad")
    assert list(map(json.loads, found)) == list(map(json.loads, wanted))
    for file in sorted((kept / "state" / "log").iterdir()):
        job = restored(kept, tmp_path / "job")
        flipped(tmp_path / "job" / "state" / "log" / file.name)
        with pytest.raises(ap.StateError, match="is damaged"):
            run(job)


def _rounded(row: str) -> dict[str, Any]:
    """An answer, without the last digits, which depend on the machine."""
    return {name: round(one, 9) if isinstance(one, float) else one for name, one in json.loads(row).items()}


@pytest.mark.parametrize("operator", ["join", "count windows", "queries"])
def test_a_crash_between_any_two_operations_on_files_changes_no_row(
    tmp_path: Path, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rename, sync and removal of a file in turn is the one that the process does not come to."""
    monkeypatch.setattr(saving, "_LEAST_LOG", 0)
    monkeypatch.setattr(saving, "_TIMES", 0)
    job = make(tmp_path / "whole", operator)
    _few(job)
    wanted, bad = written(tmp_path / "whole" / "out"), rejects(tmp_path / "whole" / "bad")
    assert wanted
    left = [0]

    def breaking(known: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise CrashError
            return known(*given, **more)

        return act

    for place, name in ((Path, "replace"), (Path, "unlink"), (os, "fsync")):
        monkeypatch.setattr(place, name, breaking(getattr(place, name)))
    operations, ended = 0, False
    while not ended:
        job = make(tmp_path / f"at{operations}", operator)
        operations += 1
        left[0] = operations
        try:
            _few(job)
            ended = True
        except CrashError:
            left[0] = 0
            _few(job)
        assert written(job.file.parent / "out") == wanted
        assert rejects(job.file.parent / "bad") == bad
    assert operations > 20


def _few(job: Any) -> None:
    """Run a job to its end in few steps."""
    resident = Resident(job, commit_every=0.0)
    for source in resident.sources:
        assert isinstance(source, Recorded)
        source._rows = 35
    resident.run(drain=True)
