#!/usr/bin/env python3
"""Check what `make package` built, and write a bill of materials beside it.

    python tools/check_package.py dist

Runs in the environment of `tools/package.lock`: twine on the metadata and the README that an index shows,
check-wheel-contents on the wheel, cyclonedx on `requirements.lock`. Every file of the package has to be in the wheel,
and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", "tools/setup.py")


def main(arguments: list[str]) -> int:
    """Check the newest wheel and sdist of a folder; 1 if anything is wrong."""
    dist = Path(arguments[0] if arguments else "dist")
    wheels, sdists = sorted(dist.glob("appulse-*.whl")), sorted(dist.glob("appulse-*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        sys.exit(f"{dist} has {len(wheels)} wheels and {len(sdists)} sdists: empty it and build again")
    wrong = [*wheel_problems(wheels[0]), *sdist_problems(sdists[0])]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    programs = Path(sys.executable).parent
    tools = [
        ["twine", "check", "--strict", str(wheels[0]), str(sdists[0])],
        ["check-wheel-contents", str(wheels[0])],
        ["cyclonedx-py", "requirements", "requirements.lock", "--pyproject", "pyproject.toml"],
    ]
    tools[-1] += ["--output-reproducible", "--output-file", str(dist / "sbom.cdx.json")]
    codes = [subprocess.run([programs / tool[0], *tool[1:]], check=False, cwd=ROOT).returncode for tool in tools]
    return 1 if wrong or any(codes) else 0


def wheel_problems(wheel: Path) -> list[str]:
    """Files that the wheel lacks, or that do not belong in it."""
    with zipfile.ZipFile(wheel) as opened:
        there = {name for name in opened.namelist() if ".dist-info/" not in name}
    wanted = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix not in (".nbi", ".nbc")
    }
    return [
        *(f"{wheel.name} lacks {name}" for name in sorted(wanted - there)),
        *(f"{wheel.name} has {name}, which is not in src" for name in sorted(there - wanted)),
    ]


def sdist_problems(sdist: Path) -> list[str]:
    """Files that the sdist lacks."""
    with tarfile.open(sdist) as opened:
        there = {name.partition("/")[2] for name in opened.getnames()}
    return [f"{sdist.name} lacks {name}" for name in NEEDED if name not in there]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
