"""Imputers as files: the repository, its indexes, and how the rules fared; and folders of versions of them.

Files of a folder are ``000001.repository``, ``000002.repository`` and so on; the greatest number is the newest. All
versions of a folder have the same rules and settings, so that what filled a row has one name whatever the version.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from appulse.errors import BadArgument, StateError, StorageError
from appulse.imputation import arrays
from appulse.imputation.dependencies import from_toml, to_toml
from appulse.imputation.lattice import Lattice
from appulse.imputation.repository import Index, Repository
from appulse.imputation.verification import Verification

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from appulse.imputation.dependencies import DifferentialDependency

_ENDING = ".repository"
_FORMAT = 1


@dataclass(frozen=True)
class Stored:
    """What a file holds of an imputer: its arguments, how its rules fared, and the lattices that it has made."""

    repository: Repository
    rules: Sequence[DifferentialDependency]
    settings: Mapping[str, Any]
    verified: Sequence[Verification]
    lattices: Mapping[tuple[tuple[str, ...], tuple[int, ...]], Lattice]


def numbers_in(folder: Path) -> list[int]:
    """The versions in a folder, in order."""
    return sorted(int(file.stem) for file in folder.glob(f"*{_ENDING}") if file.stem.isdecimal())


def newest_in(folder: Path) -> int:
    """The newest version in a folder; `BadArgument` if there is none."""
    known = numbers_in(folder)
    if not known:
        raise BadArgument(f"There is no saved imputer in {folder}. Put one there: imputer.save({str(folder)!r}).")
    return known[-1]


def file_of(folder: Path, number: int) -> Path:
    """Where a version is."""
    return folder / f"{number:06d}{_ENDING}"


def save(imputer: Stored, folder: Path) -> int:
    """Put an imputer into a folder as its newest version; the number of that.

    Raises `BadArgument` if the versions that are there have other rules, settings or columns.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be a folder: {error}. Give another.") from error
    header, held = _header(imputer), _arrays(imputer)
    while True:
        known = numbers_in(folder)
        if known:
            _refuse_others(header, folder, known[-1])
        number = known[-1] + 1 if known else 1
        try:
            arrays.write(file_of(folder, number), header, held)
        except FileExistsError:
            continue  # somebody else was faster
        return number


def write_file(imputer: Stored, path: Path) -> None:
    """An imputer as a file outside of any folder of versions."""
    arrays.write(path, _header(imputer), _arrays(imputer))


def read_file(path: Path, *, check: bool) -> Stored:
    """The imputer in a file, mapped into memory; ``check`` reads all of it once."""
    try:
        header, held = arrays.read(path, check=check)
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {error}") from error
    if header.get("format") != _FORMAT:
        raise StateError(f"{path} is of format {header.get('format')}, this appulse reads {_FORMAT}. Save it again.")
    columns = dict(zip(header["names"], held["rows"], strict=True))
    repository, rules = Repository.of(columns, header["version"]), from_toml(header["rules"])
    verified = [Verification(rule, **_pair(saved)) for rule, saved in zip(rules, header["verified"], strict=True)]
    lattices: dict[tuple[tuple[str, ...], tuple[int, ...]], Lattice] = {}
    for i, saved in enumerate(header["lattices"]):
        own = {name.removeprefix(f"{i} "): array for name, array in held.items() if name.startswith(f"{i} ")}
        dependents, numbers = tuple(saved["dependents"]), tuple(saved["numbers"])
        index = Index.of(saved["axes"], dependents, own)
        chosen = [rules[k] for k in numbers]
        lattice = Lattice(repository, chosen, numbers, dependents, (index, own["expected"], saved["method"]))
        lattices[dependents, numbers] = lattice
    return Stored(repository, rules, header["settings"], verified, lattices)


def _header(imputer: Stored) -> dict[str, Any]:
    verified = [{k: v for k, v in asdict(one).items() if k != "rule"} for one in imputer.verified]
    lattices = [
        {"dependents": dependents, "numbers": numbers, "axes": lattice.axes, "method": lattice.known[2]}
        for (dependents, numbers), lattice in imputer.lattices.items()
    ]
    return {
        "format": _FORMAT,
        "version": imputer.repository.version,
        "names": imputer.repository.names,
        "rules": to_toml(imputer.rules),
        "settings": imputer.settings,
        "verified": verified,
        "lattices": lattices,
    }


def _arrays(imputer: Stored) -> dict[str, Any]:
    held: dict[str, Any] = {"rows": imputer.repository.matrix(imputer.repository.names)}
    for i, lattice in enumerate(imputer.lattices.values()):
        index, expected, _ = lattice.known
        own = {**index.arrays, "expected": expected}
        held |= {f"{i} {name}": array for name, array in own.items()}
    return held


def _pair(saved: dict[str, Any]) -> dict[str, Any]:
    return {**saved, "against": None if saved["against"] is None else tuple(saved["against"])}


def _refuse_others(header: dict[str, Any], folder: Path, number: int) -> None:
    known = arrays.read(file_of(folder, number), check=False)[0]
    for what in ("names", "rules", "settings"):
        own = list(header[what]) if what == "names" else header[what]
        if known[what] != own:
            raise BadArgument(
                f"{folder} holds imputers with other {what}: {known[what]!r} there, {own!r} here. Versions of a folder "
                "differ in rows alone. Take another folder."
            )
