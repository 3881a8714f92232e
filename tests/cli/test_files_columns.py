"""Of files of Parquet and ORC a job in process reads, and keeps, the columns that its job file names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from appulse import jobs
from appulse.connect.folder import Folder
from appulse.jobs import saver as saving
from appulse.jobs.resident import Resident, Step
from tests.cli.test_resident import written
from tests.cli.test_resident_checkpoint import OPERATORS, make, rejects

if TYPE_CHECKING:
    from pathlib import Path

WIDE = {f"further{i}": np.arange(12.0) for i in range(40)}


def in_files(folder: Path, operator: str, form: str = "parquet") -> Any:
    """The job over files of 12 rows, with columns that it does not name."""
    job = make(folder, operator)
    text = job.file.read_text()
    for name in job.table.sources:
        rows = pq.read_table(folder / f"{name}.parquet")
        (folder / name).mkdir()
        for i in range(0, len(rows), 12):
            some = rows.slice(i, 12)
            for column, values in WIDE.items():
                some = some.append_column(column, pa.array(values[: len(some)]))
            (pq if form == "parquet" else orc).write_table(some, folder / name / f"{i:03d}.{form}")
        old = f'format = "replay"\npath = "{name}.parquet"\nspeed = "max"\n'
        assert old in text
        text = text.replace(old, f'format = "{form}"\npath = "{name}"\nmax_files_per_trigger = 1\n')
    job.file.write_text(text)
    return jobs.load(job.file)


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_columns_that_a_job_does_not_name_are_not_read(tmp_path: Path, form: str) -> None:
    job = in_files(tmp_path / "job", "queries", form)
    text = job.file.read_text().replace("x > 5", "x > 5 AND `further1` >= 0")
    text = text.replace('key = "id"', 'key = "id"\ncarry = "further2"\nwhere = "further3 < 11"', 1)
    job.file.write_text(text.replace('path = "out"', 'path = "out/further4"'))
    steps: list[Step] = []
    Resident(jobs.load(job.file), on_step=steps.append).run(drain=True)
    for step in steps[:-1]:
        found = set(step.rows["near"].column_names)
        assert found >= {"id", "time", "x", "y"}
        assert found & WIDE.keys() == {"further1", "further2", "further3"}
    assert written(tmp_path / "job" / "out" / "further4")


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
def test_checkpoints_with_all_columns_go_on(
    tmp_path: Path, operator: str, saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if saved:
        monkeypatch.setattr(saving, "_LEAST_LOG", 0)
        monkeypatch.setattr(saving, "_TIMES", 0)
    whole, job = (in_files(tmp_path / name, operator) for name in ("whole", "broken"))
    Resident(whole, commit_every=0.0).run(drain=True)
    later: list[tuple[Path, Path]] = []
    for name in job.table.sources:
        for file in sorted((tmp_path / "broken" / name).iterdir())[3:]:
            later.append((file, tmp_path / "broken" / f"{name}-{file.name}"))
            file.rename(later[-1][1])
    begin = Folder.begin
    with monkeypatch.context() as patch:  # as versions did that kept all columns, and paths

        def all_columns(self: Folder, offsets: Any, *, once: bool = False) -> None:
            begin(self, offsets, once=once)
            self._all = True

        patch.setattr(Folder, "begin", all_columns)
        Resident(job, commit_every=0.0).run(once=True)
    for file, aside in later:
        aside.rename(file)
    Resident(job, commit_every=0.0).run(drain=True)
    assert written(tmp_path / "broken" / "out") == written(tmp_path / "whole" / "out")
    assert rejects(tmp_path / "broken" / "bad") == rejects(tmp_path / "whole" / "bad")
