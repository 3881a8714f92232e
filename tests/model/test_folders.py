"""Folders that a query writes to are apart from each other and from what it reads, however paths are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from appulse.model.folders import clashes


@pytest.mark.parametrize(
    ("mine", "other", "how"),
    [
        ("out", "out", "is"),
        ("out", "out/", "is"),
        ("out", "./in/../out", "is"),
        ("out", "{here}/out", "is"),
        ("file:{here}/out", "out", "is"),
        ("file://{here}/out/", "FILE:///{here}/out", "is"),
        ("link/a", "out/a", "is"),
        ("out/a/b", "out", "lies in"),
        ("out", "out/a/b", "contains"),
        ("/", "out", "contains"),
        ("out", "out/_checkpoint", None),
        ("out/.a/b", "out", None),
        ("out/a/_b", "out", "lies in"),
        ("out", "outer", None),
        ("out", "file://{here}/other", None),
        ("s3a://store/out", "s3://store/out/", "is"),
        ("S3a://store/out/a", "s3a://store/out", "lies in"),
        ("s3a://store/out", "s3a://shop/out", None),
        ("hdfs:///out", "hdfs:/out", "is"),
        ("hdfs:///out", "/out", None),
        ("data/out", "data/*", "lies in"),
        ("data/out", "data/*.parquet", None),
        ("data", "data/*.parquet", "contains"),
        ("data/out", "data/i*/2024", None),
        ("data/in", "data/i*/2024", "contains"),
        ("data/out", "data/{{a,b}}/x", "lies in"),
        ("data", "data/**/x", "lies in"),
        ("da*", "data", None),
    ],
)
def test_folders_are_compared_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: str, other: str, how: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    Path("link").symlink_to("out")
    mine, other = mine.format(here=tmp_path), other.format(here=tmp_path)
    found = clashes({"sink": mine}, {"checkpoint": other})
    assert [name for name, _ in found] == (["sink"] if how else [])
    assert all(problem.startswith(f"{mine} {how} ") for _, problem in found)


def test_what_is_written_is_compared_among_itself_and_what_is_read_is_not() -> None:
    assert clashes({"sink": "/a", "rejects": "/b"}, {"left": "/c", "right": "/c"}) == []
    (clash,) = clashes({"sink": "/a", "rejects": "/a/b"}, {})
    assert clash.name == "rejects"
    assert clash.problem.startswith("/a/b lies in /a, the folder of sink.")
