"""Checkpoints that versions of appulse wrote: those of this format and later ones go on, older ones say what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import appulse as ap
from appulse.engines.spark import checkpoint
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.spark.tiling import Tiling, Version
from tests.fixtures.checkpoints import JOBS, run, unbroken, unpacked

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

ARCHIVES = Path(__file__).resolve().parents[1] / "fixtures"
#: Formats that this version goes on from.
FORMATS = [3, 4]


@pytest.fixture(scope="module", params=FORMATS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of one format."""
    folder: Path = tmp_path_factory.mktemp(f"format-{request.param}")
    unpacked(ARCHIVES / f"checkpoints-{request.param}.tar.gz", folder)
    return folder


@pytest.mark.parametrize("job", JOBS)
def test_a_kept_checkpoint_goes_on_exactly(spark: SparkSession, kept: Path, job: str) -> None:
    """Answers before and after are those of a run that never stopped: rows and pairs were held.

    To nine digits, as the machine that wrote the first ones may have rounded otherwise. Probabilities of exact rows
    beside Gaussians, and of queries over Gaussians, went by 64 points in these formats, and are exact since.
    """
    whole = unbroken(job)
    columns = json.loads(whole[0]).keys()  # some of before are gone: what phenomena predicted
    before = [_of(row, columns) for row in json.loads((kept / job / "answers.json").read_text())]
    after = run(spark, job, kept / job, 1, drain=True)
    assert min(len(before), len(after)) > 0
    assert not set(_rounded(after)) - set(_rounded(whole))
    assert _without_probability([*before, *after]) == _without_probability(whole)
    if job not in ("join", "queries"):
        assert _rounded([*before, *after]) == _rounded(whole)


def test_a_checkpoint_from_before_formats_could_be_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    unpacked(ARCHIVES / "checkpoints-2.tar.gz", tmp_path)
    before = _files(tmp_path)
    with pytest.raises(ap.CheckpointError) as told:
        run(spark, "join", tmp_path / "join", 1)
    assert "was written by appulse 0.1.0" in str(told.value)
    assert "Drain it with that version, by ap.start(..., drain=True)" in str(told.value)
    assert "start anew with a new one" in str(told.value)
    assert _files(tmp_path) == before, "what the older version is to drain was changed"


@pytest.fixture
def joined(tmp_path: Path) -> Path:
    """One checkpoint of the newest format, to be changed."""
    unpacked(ARCHIVES / f"checkpoints-{FORMATS[-1]}.tar.gz", tmp_path)
    for other in set(JOBS) - {"join"}:
        shutil.rmtree(tmp_path / other)
    return tmp_path / "join"


def test_a_newer_format_is_refused(spark: SparkSession, joined: Path) -> None:
    _change(joined, format=99, appulse="7.5.0")
    with pytest.raises(ap.CheckpointError, match=r"was written by appulse 7.5.0 \(format 99\).*Use appulse 7.5.0 or"):
        run(spark, "join", joined, 1)


def test_a_checkpoint_goes_on_under_the_next_format(
    spark: SparkSession, joined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that version's from then on: the one before no longer touches it."""
    monkeypatch.setattr(checkpoint, "_FORMAT", FORMATS[-1] + 1)
    run(spark, "join", joined, 0)
    assert _stored(joined)["format"] == FORMATS[-1] + 1
    monkeypatch.undo()
    with pytest.raises(ap.CheckpointError, match=rf"format {FORMATS[-1] + 1}\).*reads formats up to {FORMATS[-1]}"):
        run(spark, "join", joined, 1)


def test_what_differs_is_listed_up_to_a_few_lines(spark: SparkSession, joined: Path) -> None:
    call = _stored(joined)["call"]
    _change(joined, call=call | {"epsilon": 50.0, "probability": 0.25, **{f"later_{i}": i for i in range(5)}})
    with pytest.raises(ap.CheckpointError) as told:
        run(spark, "join", joined, 1)
    first, *lines, last = str(told.value).splitlines()
    assert first == f"The checkpoint {joined / 'checkpoint'} belongs to another job:"
    assert lines[0] == "  epsilon: the checkpoint has 50.0, the job asks for 1.5"
    assert lines[1:] == [
        *(f"  later_{i}: the checkpoint has {i}, the job asks for none" for i in range(4)),
        "  and 2 more",
    ]
    assert last == "Restore the job, or start with a new checkpoint."


def test_a_checkpoint_says_what_it_is_of(joined: Path) -> None:
    stored = _stored(joined)
    assert sorted(stored) == ["appulse", "call", "closed", "format", "id", "tiles"]
    assert stored["appulse"] == "0.1.0"
    assert stored["call"]["call"] == "similarity_join"
    assert [stream["name"] for stream in stored["call"]["streams"]] == ["a", "b"]
    assert (stored["call"]["epsilon"], stored["call"]["window"]["length"]) == (1.5, "12 seconds")


def test_tile_plans_are_read_as_they_were_written() -> None:
    hot: Any = {"hot": (7, 1 << 63), "hot_classes": (1, 2), "hot_first": (0, 1), "hot_tiles": (0, 1, 1, 0)}
    plain, cut = TilePlan(2, 0.1, 0.0, 1 / 3), TilePlan(2, 1.5, 24.0, 0.5, **hot, slots=3)
    for tiling in (Tiling((Version(plain),), 0), Tiling((Version(plain),), 5).followed_by(cut, 17)):
        kept = json.loads(json.dumps(tiling.meaning(), sort_keys=True))
        assert Tiling.kept(kept) == tiling
        assert kept == Tiling.kept(kept).meaning()
    assert plain.meaning() == {"tiles": 2, "side": 0.1, "margin": 1 / 3}
    # In the state of every tile.
    assert (plain.fingerprint(), cut.fingerprint()) == ("8873fd07656ec253", "32c6f09abe190a56")


def _of(row: str, columns: Collection[str]) -> str:
    return json.dumps({name: value for name, value in json.loads(row).items() if name in columns}, sort_keys=True)


def _without_probability(rows: list[str]) -> list[str]:
    return _rounded([json.dumps({k: v for k, v in json.loads(row).items() if k != "probability"}) for row in rows])


def _rounded(rows: list[str]) -> list[str]:
    read = (json.loads(row, parse_float=lambda number: round(float(number), 9)) for row in rows)
    return sorted(json.dumps(row, sort_keys=True) for row in read)


def _stored(folder: Path) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((folder / "checkpoint" / "appulse.json").read_text())
    return stored


def _change(folder: Path, **changes: Any) -> None:
    (folder / "checkpoint" / "appulse.json").write_text(json.dumps(_stored(folder) | changes))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file() and "checkpoint" in file.parts}


def test_a_mark_of_the_end_holds_until_rows_come(spark: SparkSession, tmp_path: Path) -> None:
    place = checkpoint.Checkpoint(spark, str(tmp_path))
    Path(place.end_folder, "0123456789ab.json").touch()  # of a version that did not keep what came behind it
    ended = [place.ended]
    for step in 2 * [place.end, place.goes_on]:
        step()
        ended.append(place.ended)
    assert ended == [False, True, False, True, False]
