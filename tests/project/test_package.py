"""What is released: its metadata, its licences, its recipe, and the wheel in a fresh environment."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import appulse as ap
from tools import check_docs

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 900


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return read


def plain(requirement: str) -> str:
    return re.sub(r"\s+", "", requirement)


def test_one_version_stands_everywhere(project: dict[str, Any]) -> None:
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert cited is not None
    assert project["version"] == ap.version == cited[1]
    assert f'version: "{ap.version}"' in recipe
    assert f"appulse-{ap.version}-py3-none-any.whl" in (ROOT / "docs" / "first-minutes.md").read_text(encoding="utf-8")


def test_the_conda_recipe_needs_what_the_package_needs(project: dict[str, Any]) -> None:
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = re.findall(r"^    - (.*)$", recipe.partition("  run:\n")[2].partition("  run_constraints:")[0], re.MULTILINE)
    wanted = [f"python{project['requires-python']}", *project["dependencies"]]
    assert sorted(map(plain, run)) == sorted(map(plain, wanted))
    constrained = re.findall(
        r"^    - (.*)$", recipe.partition("  run_constraints:\n")[2].partition("\ntests:")[0], re.MULTILINE
    )
    extras = {plain(one) for extra in ("spark", "geo") for one in project["optional-dependencies"][extra]}
    assert set(map(plain, constrained)) <= extras


@pytest.mark.long
def test_the_wheel_alone_runs_the_readme(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    wheel = next((tmp_path / "dist").glob("*.whl"), None)
    assert wheel is not None, built.stderr
    programs = tmp_path / "venv" / "bin"
    python = str(programs / "python")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=PATIENCE)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[spark]"]
    subprocess.run(install, check=True, timeout=PATIENCE)
    subprocess.run([python, "-m", "pip", "check"], check=True, timeout=PATIENCE)
    said = subprocess.run([programs / "appulse", "--version"], check=True, capture_output=True, text=True)
    assert said.stdout == f"appulse {ap.version}\n"
    (tmp_path / "work").mkdir()
    ran = subprocess.run(
        [python, "-c", check_docs.read(ROOT / "README.md").program],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path / "work",
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Bella" in ran.stdout
    assert ran.stdout.rstrip().endswith("2")
