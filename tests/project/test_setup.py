from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest
from packaging.requirements import Requirement

from tools import setup

ROOT = Path(__file__).resolve().parents[2]
BUILDERS = "uv==3 \\\n    --hash=sha256:01\nsetuptools==1 \\\n    --hash=sha256:00\n    # via appulse\n"


def venv(spark: str = "") -> setup.Environment:
    return setup.Environment(setup.ROOT / ".venv", spark)


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """An empty checkout whose set-ups make environments and install nothing; gives what pip was asked for.

    These environments take the pip of this Python's own packages: to install one takes seconds.
    """
    asked: list[list[str]] = []
    light = EnvBuilder(system_site_packages=True, clear=True, symlinks=True)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "requirements.lock").write_text(f"{BUILDERS}zlib==2\n")
    places = {
        "ROOT": tmp_path,
        "LOCK": tmp_path / "requirements.lock",
        "make": lambda venv: light.create(venv.folder),
        **dict.fromkeys(("pip", "install"), lambda _, *arguments, **__: asked.append(list(arguments))),
    }
    for name, place in places.items():
        monkeypatch.setattr(setup, name, place)
    return asked


def test_set_up_does_what_is_needed_and_no_more(checkout: list[list[str]]) -> None:
    setup.set_up(venv())
    assert [flags[0] for flags in checkout] == ["--require-hashes", "--require-hashes", "--no-deps"]
    assert (venv().folder / "builder.lock").read_text() == BUILDERS
    made = (venv().folder / "pyvenv.cfg").stat().st_mtime_ns

    checkout.clear()
    setup.set_up(venv())
    assert checkout == []

    (setup.ROOT / "pyproject.toml").write_text("[project]\nname = 'appulse'\n")
    setup.set_up(venv())
    assert [flags[0] for flags in checkout] == ["--no-deps"]

    checkout.clear()
    setup.LOCK.write_text(setup.LOCK.read_text() + "zlib==3\n")
    setup.set_up(venv())
    assert [flags[0] for flags in checkout] == ["--require-hashes", "--require-hashes", "--no-deps"]
    assert (venv().folder / "pyvenv.cfg").stat().st_mtime_ns == made


def test_kernels_are_compiled_until_that_ends_well_and_not_for_a_demo(
    checkout: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    ends = iter((1, 0))

    def compiled(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        ran.append(command[-1])
        return subprocess.CompletedProcess(command, next(ends))

    def run(_: setup.Environment, program: list[str]) -> int:
        ran.append(program[0])
        return 0

    monkeypatch.setattr("tools.setup.subprocess.run", compiled)
    monkeypatch.setattr(setup, "run", run)
    monkeypatch.setattr(setup, "usable", lambda _, found: bool(found))
    for name in ("demo", "test", "test", "test"):
        assert setup.main([name]) == 0
    assert ran == ["appulse", "appulse", "warm", "pytest", "warm", "pytest", "pytest"]
    assert checkout


def test_interrupted_set_up_starts_over(checkout: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(setup, "pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            setup.set_up(venv())
    half_installed = venv().folder / "half-installed"
    half_installed.touch()
    setup.set_up(venv())
    assert not half_installed.exists()
    assert len(checkout) == 3
    assert setup.standing(venv()) != {}


def test_environment_that_was_moved_is_made_anew(checkout: list[list[str]]) -> None:
    setup.set_up(venv())
    venv().stamp.write_text(venv().stamp.read_text().replace(str(setup.ROOT), "/elsewhere"))
    checkout.clear()
    setup.set_up(venv())
    assert len(checkout) == 3


def test_broken_environment_is_made_anew(checkout: list[list[str]]) -> None:
    setup.set_up(venv())
    venv().python.unlink()
    checkout.clear()
    setup.set_up(venv())
    assert len(checkout) == 3
    assert venv().python.exists()


def test_python_that_cannot_make_environments_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(SystemExit, match=r"lacks the module ensurepip.*apt install"):
        setup.check_python()


def test_old_python_hands_over_or_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []
    monkeypatch.setattr(setup, "OLDEST", (99, 0))
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(SystemExit, match=r"appulse needs 3\.11"):
        setup.check_python()
    monkeypatch.setattr("shutil.which", lambda name: f"/new/{name}")
    monkeypatch.setattr("os.execv", lambda program, arguments: handed.append((program, *arguments)))
    with pytest.raises(SystemExit):
        setup.check_python()
    assert handed[0] == ("/new/python3.14", "/new/python3.14", *sys.argv)


def test_another_spark_takes_the_place_of_the_locked(checkout: list[list[str]]) -> None:
    setup.LOCK.write_text(setup.LOCK.read_text() + "pyspark==4.3.0 \\\n    --hash=sha256:00\n")
    setup.set_up(venv("4.2"))
    assert [flags[-1] for flags in checkout][1] == "pyspark==4.2.*"
    assert Path(checkout[2][-1]).read_text() == setup.LOCK.read_text().partition("pyspark")[0]


def test_another_spark_has_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[setup.Environment] = []
    monkeypatch.setattr(setup, "set_up", made.append)
    monkeypatch.setattr(setup, "run", lambda _, program: program[-1] != "-x")
    assert setup.main(["test-spark", "4.2", "-x"]) == 0
    (one,) = made
    assert one.spark == "4.2"
    assert one.folder.name == f".venv-spark-4.2-python3.{sys.version_info[1]}"
    for version in ("", "-x", "four"):
        with pytest.raises(SystemExit, match=r"make test-spark VERSION=4\.2"):
            setup.main(["test-spark", version])


def test_spark_that_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    with pytest.raises(SystemExit, match="nothing was tested"):
        setup.pip(venv("4.9"), "pyspark==4.9.*", otherwise="nothing was tested")


@pytest.mark.parametrize(
    ("index", "fails", "ran"),
    [("", False, ["uv"]), ("", True, ["uv", "pip"]), ("global.index-url='x'", False, ["pip"])],
)
def test_pip_installs_where_uv_cannot(monkeypatch: pytest.MonkeyPatch, index: str, fails: bool, ran: list[str]) -> None:
    asked: list[str] = []

    def played(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "config" in command:
            return subprocess.CompletedProcess(command, 0, stdout=index)
        asked.append("uv" if command[0].endswith("uv") else "pip")
        return subprocess.CompletedProcess(command, int(fails and asked[-1] == "uv"))

    monkeypatch.setattr("subprocess.run", played)
    setup.install(venv(), "--requirement", "some.lock")
    assert asked == ran


def test_unknown_command_names_the_known_ones() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "setup.py", "tset"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "'tset'" in ran.stderr
    assert "test-long" in ran.stderr


def test_every_target_of_make_is_a_command() -> None:
    targets = re.findall(r"\$\(SETUP\) ([\w-]+)", (ROOT / "Makefile").read_text())
    assert sorted(targets) == sorted(setup.COMMANDS)


def test_commands_stop_at_the_first_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(_: setup.Environment, program: list[str]) -> int:
        ran.append(program)
        return len(ran) - 1

    monkeypatch.setattr(setup, "set_up", lambda _: None)
    monkeypatch.setattr(setup, "run", run)
    assert setup.main(["lint", "--fix"]) == 1
    assert ran == setup.COMMANDS["lint"][:2]
    ran.clear()
    assert setup.main(["bench", "pipeline", "--quick"]) == 0
    assert ran == [["python", "-m", "benchmarks.pipeline", "--quick"]]


def test_lock_pins_every_dependency_with_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {Requirement(line).name for lines in project["optional-dependencies"].values() for line in lines}
    wanted |= {Requirement(line).name for line in project["dependencies"]}
    wanted.discard(project["name"])  # extras that contain others
    entries = re.findall(r"^([\w.-]+)==\S+.*\n((?:[ ].*\n)*)", lock, re.MULTILINE)
    assert wanted <= {name for name, _ in entries}
    assert all("--hash=sha256:" in rest for _, rest in entries)
    assert "://" not in lock


def test_the_site_has_an_environment_of_its_own_without_appulse(
    checkout: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "TOOLS", tmp_path)
    (tmp_path / "site.lock").write_text("sphinx==9.0 \\\n    --hash=sha256:00\n")
    setup.set_up(setup.Environment(tmp_path / ".venv-site", apart="site"))
    assert checkout[-1][-1] == str(tmp_path / "site.lock")
    assert not any("--editable" in flags for flags in checkout)


def test_an_environment_that_a_link_points_to_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: EnvBuilder(clear=True).create(command[-1]))
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "link"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    link.symlink_to(elsewhere)
    setup.make(setup.Environment(link))
    assert (elsewhere / "kept").exists()
    assert (link / "pyvenv.cfg").exists()
    assert not link.is_symlink()
