"""Real data is found in one place, which can be elsewhere, or hidden; tests that do not ask for it never see it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from examples.data_folder import data_at

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples", "tools")


def test_the_data_is_beside_the_checkout_or_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("APPULSE_DATA")
    assert data_at("a/b.parquet").parent.parent.parent.parent == ROOT.parent
    monkeypatch.setenv("APPULSE_DATA", str(tmp_path))
    assert data_at("a/b.parquet") == tmp_path / "a" / "b.parquet"
    assert data_at() == tmp_path
    monkeypatch.setenv("APPULSE_DATA", "")
    assert not data_at().is_dir()
    assert not data_at("intel_lab").exists()


def test_no_test_sees_the_data_without_asking_for_it() -> None:
    """Whatever a test finds that does not take the fixture `data`, and is not marked so, is there on any machine."""
    assert not data_at().is_dir()


def test_one_file_knows_where_the_data_is() -> None:
    """And nothing else looks beside the checkout for itself."""
    beside = re.compile(r'"share[d]"|share[d]/data')
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    assert [file.name for file in files if beside.search(file.read_text("utf-8"))] == ["data_folder.py"]
