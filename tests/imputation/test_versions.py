"""Imputers in files: what is read fills as what was written, what is damaged is told, versions go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.imputation import arrays
from appulse.imputation.imputer import read, stored
from appulse.imputation.storage import file_of, numbers_in, write_file
from appulse.imputation.versions import SavedImputer, chosen, mapped

if TYPE_CHECKING:
    from pathlib import Path

RULES = [
    ap.DifferentialDependency({"a": 0.5}, "b", 9.0),
    ap.DifferentialDependency({"c": 0.5}, "b", 2.0, confidence=0.1, where={"a": (-1.0, 1.0)}),
    ap.DifferentialDependency({"a": 1.0, "b": 0.0}, "c", 9.0),
]


def rows(seed: int, n: int) -> pa.Table:
    values = np.random.default_rng(seed).integers(-3, 4, (n, 3)) / 2
    return pa.table(dict(zip("abc", values.T, strict=True)))


def holed(seed: int) -> Any:
    chance = np.random.default_rng(seed)
    values = chance.integers(-4, 5, (20, 3)) / 2
    values[chance.random((20, 3)) < 0.4] = np.nan
    return values[~np.isnan(values).all(axis=1)]


def fills(imputer: Any, values: Any) -> list[Any]:
    nothing = np.zeros(len(values), np.int64)
    fill = imputer.bind("abc")
    found = fill.fill(values, nothing, nothing)
    told = [fill.describe(int(way)) for way in found.way.ravel() if way >= 0]
    return [found.first.tolist(), found.rows.tolist(), found.weights.tolist(), told]


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.booleans(), st.integers(0, 3))
def test_what_is_read_fills_as_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, joint: bool, rules: int
) -> None:
    path = tmp_path_factory.mktemp("saved") / "one"
    imputer = ap.DependencyImputer(rows(seed, n), RULES[:rules], joint=joint, marginal=5, instances=40)
    expected = fills(imputer, holed(seed))
    write_file(stored(imputer), path)
    found = read(path, check=True)
    assert fills(found, holed(seed)) == expected
    assert found.version == imputer.version
    assert found.verified == imputer.verified
    assert found.settings == imputer.settings
    more = rows(seed + 1, 5)
    imputer.append(more)
    found.append(more)
    assert fills(found, holed(seed)) == fills(imputer, holed(seed))


def test_versions_go_on_and_the_newest_is_taken(tmp_path: Path) -> None:
    imputer = ap.DependencyImputer(rows(0, 50), RULES)
    first = fills(imputer, holed(0))
    assert imputer.save(tmp_path) == 1
    saved = SavedImputer(tmp_path)
    assert fills(saved, holed(0)) == first
    imputer.append(rows(1, 50))
    assert imputer.save(str(tmp_path)) == 2
    assert numbers_in(tmp_path) == [1, 2]
    assert fills(saved, holed(0)) == fills(imputer, holed(0)) != first
    assert fills(ap.DependencyImputer.load(tmp_path, 1), holed(0)) == first
    bound = saved.bind("abc")
    assert (bound.number, bound.of(1).number) == (2, 1)
    assert bound.meaning() == bound.of(1).meaning()
    values, (lows, highs) = holed(0), bound.boxes(holed(0))
    samples = fills(saved, values)
    for i, (begin, end) in enumerate(zip(samples[0][:-1], samples[0][1:], strict=True)):
        assert (np.array(samples[1][begin:end]) >= lows[i]).all()
        assert (np.array(samples[1][begin:end]) <= highs[i]).all()


def test_a_folder_has_versions_of_one_imputer(tmp_path: Path) -> None:
    with pytest.raises(ap.BadArgument, match="no saved imputer"):
        SavedImputer(tmp_path)
    with pytest.raises(ap.BadArgument, match="no saved imputer"):
        ap.DependencyImputer.load(tmp_path)
    ap.DependencyImputer(rows(0, 50), RULES).save(tmp_path)
    with pytest.raises(ap.BadArgument, match="other rules"):
        ap.DependencyImputer(rows(0, 50), RULES[:1]).save(tmp_path)
    with pytest.raises(ap.BadArgument, match="other settings"):
        ap.DependencyImputer(rows(0, 50), RULES, joint=True).save(tmp_path)
    with pytest.raises(ap.BadArgument, match="other names"):
        ap.DependencyImputer(rows(0, 50).append_column("d", rows(0, 50)["a"]), RULES).save(tmp_path)
    with pytest.raises(ap.BadArgument, match="no column 'd'"):
        SavedImputer(tmp_path).bind("abd")
    with pytest.raises(ap.BadArgument, match="cannot be read"):
        ap.DependencyImputer.load(tmp_path, 7)
    assert numbers_in(tmp_path) == [1]
    assert [file.name for file in tmp_path.iterdir()] == ["000001.repository"]  # no drafts


def test_what_was_damaged_is_told(tmp_path: Path) -> None:
    ap.DependencyImputer(rows(0, 50), RULES).save(tmp_path)
    path = file_of(tmp_path, 1)
    whole = path.read_bytes()
    length = int.from_bytes(whole[8:16], "little")
    begin = -(-(32 + length) // 64) * 64
    for at in (0, 9, 20, 40, 31 + length, begin + 3, len(whole) // 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ap.AppulseError, match="can be used"):
            ap.DependencyImputer.load(tmp_path)
    for size in (0, 8, 31, 100, begin, len(whole) - 200):
        path.write_bytes(whole[:size])
        with pytest.raises(ap.AppulseError, match="can be used"):
            read(path, check=False)
    path.write_bytes(whole)
    fills(ap.DependencyImputer.load(tmp_path), holed(0))


def test_only_arrays_of_numbers_and_formats_that_are_known(tmp_path: Path) -> None:
    arrays.write(tmp_path / "objects", {}, {"a": np.arange(3, dtype=np.int16)})
    with pytest.raises(ap.AppulseError, match="strange type"):
        arrays.read(tmp_path / "objects", check=False)
    arrays.write(tmp_path / "other", {"format": 99}, {"a": np.empty((0, 3))})
    header, held = arrays.read(tmp_path / "other", check=True)
    assert (json.dumps(header), held["a"].shape) == ('{"format": 99}', (0, 3))
    with pytest.raises(ap.AppulseError, match="format 99"):
        read(tmp_path / "other", check=True)
    with pytest.raises(FileExistsError):
        arrays.write(tmp_path / "other", {}, {})


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ap.StorageError, match="cannot be a folder"):
        ap.DependencyImputer(rows(0, 5), []).save(tmp_path / "file")
    with pytest.raises(ap.StorageError, match="cannot be written"):
        arrays.write(tmp_path / "nowhere" / "file", {}, {})


def test_a_batch_keeps_the_version_it_had_first(tmp_path: Path) -> None:
    imputer = ap.DependencyImputer(rows(0, 50), RULES)
    imputer.save(tmp_path)
    assert chosen(tmp_path, "q", 0) == 1
    imputer.save(tmp_path)
    assert [chosen(tmp_path, "q", batch) for batch in (0, 1, 0)] == [1, 2, 1]
    assert chosen(tmp_path, "other", 0) == 2
    assert chosen(tmp_path, "q", 1000) == 2
    assert sorted(file.name for file in (tmp_path / "used" / "q").iterdir()) == ["1", "1000"]
    assert numbers_in(tmp_path) == [1, 2]


def test_a_worker_that_does_not_see_the_folder_says_so_and_makes_none(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    ap.DependencyImputer(rows(0, 20), RULES).save(seen)
    fill = ap.SavedImputer(seen).bind("abc")
    elsewhere = seen.rename(tmp_path / "elsewhere")
    mapped.cache_clear()
    for asked in (lambda: chosen(seen, "query", 3), lambda: fill.boxes(np.zeros((1, 3)))):
        with pytest.raises(ap.StorageError, match=r"nothing in \S+/seen, the folder of a SavedImputer"):
            asked()
    assert not seen.exists()
    assert elsewhere.exists()
