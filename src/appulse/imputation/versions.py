"""Imputers in a folder: each version a file with the repository, its indexes, and how the rules fared.

Files are ``000001.repository``, ``000002.repository`` and so on; the greatest number is the newest. All versions of a
folder have the same rules and settings, so that what filled a row has one name whatever the version.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appulse.arguments import Attributes, Folder, checked
from appulse.errors import BadArgument, StateError, StorageError
from appulse.imputation import arrays
from appulse.imputation.dependencies import from_toml, to_toml
from appulse.imputation.imputer import DependencyImputer
from appulse.imputation.lattice import Lattice
from appulse.imputation.repository import Index, Repository
from appulse.imputation.verification import Verification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.imputation.imputer import DependencyFill
    from appulse.imputation.repository import Floats, Ints
    from appulse.model.filled import Filled
    from appulse.model.meaning import Meaning

_ENDING = ".repository"
_FORMAT = 1
_KEPT = 1000  # notes of micro-batches; Spark goes back by one


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


def save(imputer: DependencyImputer, folder: Path) -> int:
    """Put an imputer into a folder as its newest version; the number of that.

    Raises `BadArgument` if the versions that are there have other rules, settings or columns.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be a folder: {error}. Give another.") from error
    imputer.prepare()
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


def write_file(imputer: DependencyImputer, path: Path) -> None:
    """An imputer as a file outside of any folder of versions."""
    arrays.write(path, _header(imputer), _arrays(imputer))


def load(folder: Path, number: int | None = None, *, check: bool = True) -> DependencyImputer:
    """A version of a folder, default the newest, mapped into memory; ``check`` reads all of it once."""
    return read_file(file_of(folder, newest_in(folder) if number is None else number), check=check)


def read_file(path: Path, *, check: bool) -> DependencyImputer:
    """The imputer in a file."""
    try:
        header, held = arrays.read(path, check=check)
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {error}") from error
    if header.get("format") != _FORMAT:
        raise StateError(f"{path} is of format {header.get('format')}, this appulse reads {_FORMAT}. Save it again.")
    columns = dict(zip(header["names"], held["rows"], strict=True))
    repository, rules = Repository.of(columns, header["version"]), from_toml(header["rules"])
    verified = [Verification(rule, **_pair(told)) for rule, told in zip(rules, header["verified"], strict=True)]
    imputer = DependencyImputer(repository, rules, **header["settings"], verified=verified)
    for i, told in enumerate(header["lattices"]):
        own = {name.removeprefix(f"{i} "): array for name, array in held.items() if name.startswith(f"{i} ")}
        dependents, numbers = tuple(told["dependents"]), tuple(told["numbers"])
        index = Index.of(told["axes"], dependents, own)
        chosen = [rules[k] for k in numbers]
        lattice = Lattice(repository, chosen, numbers, dependents, (index, own["expected"], told["method"]))
        imputer.lattices[dependents, numbers] = lattice
    return imputer


def _header(imputer: DependencyImputer) -> dict[str, Any]:
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


def _arrays(imputer: DependencyImputer) -> dict[str, Any]:
    held: dict[str, Any] = {"rows": imputer.repository.matrix(imputer.repository.names)}
    for i, lattice in enumerate(imputer.lattices.values()):
        index, expected, _ = lattice.known
        own = {**index.arrays, "expected": expected}
        held |= {f"{i} {name}": array for name, array in own.items()}
    return held


def _pair(told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "against": None if told["against"] is None else tuple(told["against"])}


def _refuse_others(header: dict[str, Any], folder: Path, number: int) -> None:
    known = arrays.read(file_of(folder, number), check=False)[0]
    for what in ("names", "rules", "settings"):
        own = list(header[what]) if what == "names" else header[what]
        if known[what] != own:
            raise BadArgument(
                f"{folder} holds imputers with other {what}: {known[what]!r} there, {own!r} here. Versions of a folder "
                "differ in rows alone. Take another folder."
            )


# --- the newest version, whichever that is --------------------------------------------------------------------------


@checked
class SavedImputer:
    """The imputer in a folder that `DependencyImputer.save` put there: its newest version.

    In process and over batch frames that is the newest as of the call. A streaming query on Spark takes the newest as
    of each micro-batch, all of whose rows are filled by that one, also if the batch is answered again; metrics tell
    it as ``repository``. The folder has to be one that every worker can read and write. Rows that were filled stay as
    they were. Raises `BadArgument` where the folder holds none.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = Path(folder).resolve()
        newest_in(self.folder)

    @checked
    def bind(self, attributes: Attributes) -> VersionedFill:
        """What fills rows with these attributes."""
        return VersionedFill(self.folder, tuple(attributes), newest_in(self.folder))


class VersionedFill:
    """Fills by one version of a folder, which travels as its place: whoever fills maps the file into memory."""

    in_order = False

    def __init__(self, folder: Path, attributes: tuple[str, ...], number: int) -> None:
        self.folder, self.attributes, self.number = folder, attributes, number
        mapped(file_of(folder, number)).bind(attributes)  # raises for attributes that it does not have

    def meaning(self) -> Meaning:
        """Of any version: a query goes on with a repository that has grown."""
        saved = mapped(file_of(self.folder, self.number))
        columns = list(saved.repository.names)
        return saved.meaning_over({"kind": "SavedImputer", "folder": str(self.folder), "columns": columns})

    def of(self, number: int) -> VersionedFill:
        """The same by another version."""
        return VersionedFill(self.folder, self.attributes, number)

    @property
    def whole(self) -> DependencyFill:
        """The fill, from the file."""
        return mapped(file_of(self.folder, self.number)).bind(self.attributes)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        """See `appulse.model.filled.Fill`."""
        return self.whole.fill(values, time, group)

    def boxes(self, values: Floats) -> tuple[Floats, Floats]:
        """See `DependencyFill.boxes`."""
        return self.whole.boxes(values)

    def explain(self, row: Mapping[str, float | None]) -> list[dict[str, Any]]:
        """See `DependencyImputer.explain`."""
        return self.whole.explain(row)

    def told(self, way: int) -> str:
        return self.whole.told(way)


@lru_cache(maxsize=16)
def mapped(path: Path) -> DependencyImputer:
    """The imputer in a file, once for this process; the file is known to be whole, for it was written at one go."""
    return read_file(path, check=False)


def chosen(folder: Path, query: str, batch: int) -> int:
    """The version that a micro-batch of a query takes: the newest when it was first asked for, ever after the same."""
    note = folder / "used" / query / str(batch)
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), arrays.published(note) as file:  # whoever is first decides for all tasks
            file.write(str(newest_in(folder)).encode())
        (note.parent / str(batch - _KEPT)).unlink(missing_ok=True)
    return int(note.read_bytes())
