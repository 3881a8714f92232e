#!/usr/bin/env python3
"""Set the project up in `.venv` of the checkout, then run what was asked for.

    python3 tools/setup.py                  set up and stop
    python3 tools/setup.py demo [...]       ... then `appulse demo`
    python3 tools/setup.py test | test-long | lint | lock | docs-check [...]
    python3 tools/setup.py bench NAME [...] ... then `python -m benchmarks.NAME`
    python3 tools/setup.py test-spark 4.2 [...]
        the tests of every version on PySpark 4.2 and this Python, in an environment beside `.venv`
    python3 tools/setup.py site             the docs as a site in out/site, in an environment of its own
    python3 tools/setup.py package          wheel and sdist in dist, checked, with a list of what is in them; likewise

Needs Python 3.11 or later and nothing else. What is installed is what `requirements.lock` names (`tools/site.lock` and
`tools/package.lock` for the last two), checked against its hashes. A second call finds everything in place and takes no
time; an interrupted one starts over where it must.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
#: Commands with an environment of their own, `.venv-NAME`, of what `tools/NAME.lock` names; without appulse.
APART = ("site", "package")
#: Commands that compile the kernels they need themselves: a demo should not wait for all of them.
UNCOMPILED = (*APART, "demo", "lint", "lock")
TOOLS = ROOT / "tools"
SPARK = "pyspark"

# The sdists among the requirements are built with this one, from the lock like all the rest.
BUILDER = "setuptools"
# Installs the lock in a third of pip's time.
INSTALLER = "uv"

COMPILE = (
    "uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url "
    "--no-emit-find-links --custom-compile-command"
)

# One more than there are cores: two begin with tests of Spark, which wait for it a tenth of the time.
TESTS = ("pytest", "--numprocesses=3")

# Each command is a list of programs with their arguments; what else the caller typed goes to the last of them.
COMMANDS: dict[str, list[list[str]]] = {
    "demo": [["appulse", "demo", "aircraft"], ["appulse", "demo", "weather"]],
    "test": [[*TESTS]],
    "test-long": [[*TESTS, "-m", "long", "--hypothesis-profile=long"]],
    # Before 4.2 PySpark leaves sockets to the garbage collector, which warns of them.
    "test-spark": [
        ["pytest", "tests/spark", "-m", "every_version", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    ],
    "lint": [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["lint-imports", "--no-logo"],
        ["python", "-m", "tools.circles"],
    ],
    "lock": [
        [*COMPILE.split(), "make lock", "--all-extras", "pyproject.toml", "-o", LOCK.name],
        [*COMPILE.split(), "make lock", "tools/site.in", "-o", "tools/site.lock"],
        [*COMPILE.split(), "make lock", "tools/package.in", "-o", "tools/package.lock"],
    ],
    "site": [
        ["sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "-d", "out/.doctrees", "docs", "out/site"],
        ["python", "tools/check_site.py", "out/site"],
    ],
    "package": [
        ["python", "-m", "build", "--no-isolation", "--outdir", "dist"],
        ["python", "tools/check_package.py", "dist"],
    ],
    "docs-check": [["python", "tools/check_docs.py"]],
    "rivals": [["python", "-m", "benchmarks.aside"]],
}


@dataclass(frozen=True)
class Environment:
    """A virtual environment of the checkout; ``spark`` is the version of PySpark to install in place of the locked."""

    folder: Path
    spark: str = ""
    apart: str = ""

    @property
    def lock(self) -> Path:
        """What is installed in it."""
        return TOOLS / f"{self.apart}.lock" if self.apart else LOCK

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """What the last finished set-up was made from."""
        return self.folder / "appulse-setup.json"

    @property
    def compiled(self) -> Path:
        """The stamp of the set-up whose kernels were compiled last."""
        return self.folder / "appulse-compiled.json"

    @property
    def unfinished(self) -> Path:
        """Exists while a set-up is at work, and after one that was cut short."""
        return self.folder / "appulse-setup.unfinished"


def main(arguments: list[str]) -> int:
    """Set up, run the command in the environment made, and return its exit code."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    venv = Environment(ROOT / ".venv")
    if name == "test-spark":
        venv, rest = spark_environment(rest[0] if rest else ""), rest[1:]
    if name in APART:
        venv = Environment(ROOT / f".venv-{name}", apart=name)
    if name == "bench" and rest:
        programs, rest = [["python", "-m", f"benchmarks.{rest[0]}"]], rest[1:]
    elif name in COMMANDS:
        programs = COMMANDS[name]
    elif name:
        known = ", ".join([*COMMANDS, "bench NAME"])
        fail(f"there is no command {' '.join(arguments)!r}. There are: {known}; none at all just sets up.")
    else:
        programs = []
    # Images for containers set this; without bytecode each of the many processes of Spark and of tests compiles pandas,
    # Numba and PySpark again. What is installed brings none: only what is imported is compiled, once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    set_up(venv)
    if name not in UNCOMPILED:
        compile_kernels(venv)
    for program in programs[:-1]:
        if code := run(venv, program):
            return code
    return run(venv, [*programs[-1], *rest]) if programs else 0


def spark_environment(version: str) -> Environment:
    """The environment for a version of Spark and the Python that runs this."""
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        fail(f"test-spark takes a version of Spark, not {version!r}: make test-spark VERSION=4.2 [PYTHON=python3.12]")
    return Environment(ROOT / f".venv-spark-{version}-python{sys.version_info[0]}.{sys.version_info[1]}", version)


def run(venv: Environment, program: list[str]) -> int:
    """Run a program of the environment in the checkout, with the terminal as it is."""
    programs = venv.python.parent
    environment = os.environ | {
        "VIRTUAL_ENV": str(venv.folder),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    running = subprocess.Popen([programs / program[0], *program[1:]], cwd=ROOT, env=environment)
    while True:
        try:
            return running.wait()
        except KeyboardInterrupt:  # Ctrl-C goes to the program too, which knows better how to stop
            continue


def check_python() -> None:
    """Make sure that this is a Python that can make the environment, or hand over to one that is."""
    if os.name != "posix":
        fail("appulse is developed on Linux and macOS. On Windows use WSL.")
    if sys.version_info < OLDEST:
        for minor in (14, 13, 12, 11):
            if newer := shutil.which(f"python3.{minor}"):
                os.execv(newer, [newer, *sys.argv])
        fail(f"this is Python {sys.version.split()[0]}; appulse needs 3.11 or later. Install one and run this with it.")
    for module in ("venv", "ensurepip"):
        if find_spec(module) is None:
            fail(
                f"{sys.executable} lacks the module {module}, and no environment can be made without it. "
                f"On Debian and Ubuntu: sudo apt install python3.{sys.version_info[1]}-venv"
            )


def set_up(venv: Environment) -> None:
    """Bring an environment to what the lock and pyproject.toml say, doing nothing that is done."""
    wanted = {"root": str(ROOT), "requirements": digest(venv.lock), "project": digest(ROOT / "pyproject.toml")}
    if standing(venv) == wanted:
        return
    check_python()
    with alone():
        found = standing(venv)
        if found == wanted:
            return
        if not usable(venv, found):
            say(f"making {venv.folder} with Python {sys.version.split()[0]}")
            make(venv)
            found = {}
        # What is half installed when this is cut short cannot be told from what is whole: all of it goes next time.
        venv.unfinished.touch()
        venv.stamp.unlink(missing_ok=True)
        if found.get("requirements") != wanted["requirements"]:
            say("installing the locked requirements; the first time takes a minute")
            install_requirements(venv)
        if not venv.apart:
            say("installing appulse, editable")
            pip(venv, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        venv.stamp.write_text(json.dumps(wanted))
        venv.unfinished.unlink()
    say(f"ready: {venv.folder}")


def make(venv: Environment) -> None:
    """Make an environment with nothing in it but pip; never through a link, which would clear what it points to."""
    if venv.folder.is_symlink():
        venv.folder.unlink()
    subprocess.run([sys.executable, "-m", "venv", "--clear", venv.folder], check=True)


def standing(venv: Environment) -> dict[str, str]:
    """What the last finished set-up of this environment was made from; empty if there is none."""
    if not venv.python.exists() or venv.unfinished.exists():
        return {}
    try:
        stamp: dict[str, str] = json.loads(venv.stamp.read_text())
    except (OSError, ValueError):
        return {}
    return stamp


def usable(venv: Environment, found: dict[str, str]) -> bool:
    """Whether the environment can be built upon: whole, not moved here from elsewhere, of a Python not too old."""
    if venv.unfinished.exists() or found.get("root", str(ROOT)) != str(ROOT) or not venv.python.exists():
        return False
    probe = f"import sys, pip; sys.exit(sys.version_info < {OLDEST})"
    return subprocess.run([venv.python, "-c", probe], capture_output=True, check=False).returncode == 0


def digest(file: Path) -> str:
    """Changes whenever the file does."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other set-up of this checkout is at work."""
    import fcntl

    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def compile_kernels(venv: Environment) -> None:
    """Compile the kernels of the checkout, once for each set-up: only to save time later."""
    stamp = venv.stamp.read_text() if standing(venv) else ""
    if not stamp or (venv.compiled.exists() and venv.compiled.read_text() == stamp):
        return
    say("compiling the kernels, which takes some minutes the first time")
    done = subprocess.run([venv.python, "-m", "appulse", "warm"], check=False, capture_output=True)
    if done.returncode == 0:  # else the next set-up goes on; until then kernels are compiled as they are used
        venv.compiled.write_text(stamp)


def install_requirements(venv: Environment) -> None:
    """Install the lock: the builder first, so that sdists are built with it and not with whatever is newest today."""
    builder, rest = venv.folder / "builder.lock", LOCK
    builder.write_text(requirement(INSTALLER) + ("" if venv.apart else requirement(BUILDER)))
    pip(venv, "--require-hashes", "--requirement", str(builder))
    if venv.apart:
        install(venv, "--require-hashes", "--only-binary", ":all:", "--requirement", str(venv.lock))
        return
    if venv.spark:
        wanted = f"{SPARK}=={venv.spark}.*"
        missing = f"{wanted} cannot be installed for this Python, see above. Nothing was tested."
        pip(venv, "--no-build-isolation", wanted, otherwise=missing)
        rest = venv.folder / "other.lock"
        rest.write_text(LOCK.read_text().replace(requirement(SPARK), ""))
    install(venv, "--require-hashes", "--no-build-isolation", "--requirement", str(rest))


def install(venv: Environment, *arguments: str) -> None:
    """`uv pip install` in an environment; `pip install` where pip is set to an index of its own, or uv fails."""
    settings = [str(venv.python), "-m", "pip", "config", "list"]
    if "index" not in subprocess.run(settings, capture_output=True, text=True, check=False).stdout:
        command = [str(venv.folder / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(venv.python)]
        if not subprocess.run([*command, *arguments], check=False, stdin=subprocess.DEVNULL).returncode:
            return
        say("uv failed, see above; trying pip")
    pip(venv, *arguments)


def requirement(package: str) -> str:
    """One package's lines of the lock, with its hashes."""
    found = re.search(rf"^{re.escape(package)}==.*\n(?:[ ].*\n)*", LOCK.read_text(), re.MULTILINE)
    if found is None:
        fail(f"{LOCK.name} has no {package}, which the set-up builds with. Add it to the dev extra and `make lock`.")
    return found[0]


def pip(
    venv: Environment,
    *arguments: str,
    otherwise: str = "pip failed, see above. Check the network and the disk, then run this again: it starts over.",
) -> None:
    """`pip install` in an environment, or stop with what pip said."""
    command = [str(venv.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    if subprocess.run([*command, *arguments], check=False, stdin=subprocess.DEVNULL).returncode:
        fail(otherwise)


def say(text: str) -> None:
    """Tell the user on stderr, so that stdout is the command's alone."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    """Stop with a message."""
    sys.exit(f"setup: {text}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
