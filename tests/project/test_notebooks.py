"""Notebooks run, and what is committed shows the code that runs."""

from __future__ import annotations

import json

import pytest

from tools import notebooks


@pytest.mark.parametrize("name", sorted(file.stem for file in notebooks.FOLDER.glob("*.py")))
def test_a_notebook_runs_and_is_small(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert notebooks.main(["--check", name]) == 0, capsys.readouterr().out
    file = notebooks.FOLDER / f"{name}.ipynb"
    assert file.stat().st_size <= notebooks.MOST_BYTES
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert {cell["cell_type"] for cell in cells} == {"markdown", "code"}
    assert any(cell.get("outputs") for cell in cells)
