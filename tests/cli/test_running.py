"""The log of a run: it goes on in a new file once it is large, and keeps the one before."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from appulse.cli.running import RotatingLog

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_never_takes_much_more_than_twice_its_size(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    with RotatingLog(path, most=1000) as log:
        for i in range(300):
            log.write(f"line {i:04}\n")
    old, new = (tmp_path / "job.log.1").read_text(), path.read_text()
    assert max(len(old), len(new)) <= 1010
    lines = (old + new).splitlines()
    assert lines == [f"line {i:04}" for i in range(300 - len(lines), 300)]
    with RotatingLog(path, most=1000) as log:
        log.write("another run\n")
    assert path.read_text() == new + "another run\n"


def test_lines_of_several_threads_stay_whole(tmp_path: Path) -> None:
    with RotatingLog(tmp_path / "log", most=1 << 20) as log:
        threads = [Thread(target=lambda n=n: [log.write(f"{n}" * 50 + "\n") for _ in range(200)]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 800
    assert {len(set(line)) for line in lines} == {1}
