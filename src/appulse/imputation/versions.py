"""The newest version of the imputers in a folder, whichever that is."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from appulse.arguments import Attributes, Folder, checked
from appulse.errors import StorageError
from appulse.imputation import arrays
from appulse.imputation.imputer import DependencyImputer, read
from appulse.imputation.storage import file_of, newest_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.imputation.imputer import DependencyFill
    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.filled import Filled
    from appulse.model.meaning import Meaning

_KEPT = 1000  # notes of micro-batches; Spark goes back by one


@checked
class SavedImputer:
    """The newest version of an imputer that `DependencyImputer.save` saved to a folder.

    In process and over batch frames that is the newest as of the call. A streaming query on Spark takes the newest as
    of each micro-batch, all of whose rows are filled by that one, also if the batch is answered again; metrics report
    it as ``repository``. Rows that were filled stay as they were.

    Arguments:
    * ``folder``: a path that every worker can read and write.

    Pass it as ``imputer`` to `impute` and joins.

    Raises `BadArgument` if the folder has no imputer, and `StorageError` if a worker does not see the folder.

    >>> import tempfile
    >>> known = pa.table({"x": [1.0, 2.0, 3.0], "y": [10.0, 20.0, 30.0]})
    >>> folder = tempfile.mkdtemp() + "/rules"
    >>> version = ap.DependencyImputer(known, [ap.DifferentialDependency({"x": 0.5}, "y", 5.0)]).save(folder)
    >>> rows = pa.table({"id": [1], "t": [0], "x": [2.1], "y": pa.array([None], pa.float64())})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Incomplete("x", "y"))
    >>> ap.impute(stream, ap.SavedImputer(folder)).frame["imputed"].to_pylist()
    [[[2.1, 20.0]]]
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = Path(folder).resolve()
        newest_in(self.folder)

    @checked
    def bind(self, attributes: Attributes) -> VersionedFill:
        """The object that fills rows with these attributes."""
        return VersionedFill(self.folder, tuple(attributes), newest_in(self.folder))


class VersionedFill:
    """Fills by one version of a folder, which travels as its place: each worker maps the file into memory."""

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
        return self.whole.fill(values, time, group)

    def boxes(self, values: Floats) -> tuple[Floats, Floats]:
        """See `DependencyFill.boxes`."""
        return self.whole.boxes(values)

    def explain(self, row: Mapping[str, float | None]) -> list[dict[str, Any]]:
        """See `DependencyImputer.explain`."""
        return self.whole.explain(row)

    def describe(self, way: int) -> str:
        return self.whole.describe(way)


@lru_cache(maxsize=16)
def mapped(path: Path) -> DependencyImputer:
    """The imputer in a file, once for this process; the file is known to be whole, for it was written at one go."""
    _check_shared(path.parent)
    return read(path, check=False)


def chosen(folder: Path, query: str, batch: int) -> int:
    """The version that a micro-batch of a query takes: the newest when it was first asked for, ever after the same."""
    note = folder / "used" / query / str(batch)
    if not note.exists():
        _check_shared(folder)
        note.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), arrays.published(note) as file:  # the first decides for all tasks
            file.write(str(newest_in(folder)).encode())
        (note.parent / str(batch - _KEPT)).unlink(missing_ok=True)
    return int(note.read_bytes())


def _check_shared(folder: Path) -> None:
    if not any(folder.glob("*")):
        raise StorageError(
            f"On {gethostname()} there is nothing in {folder}, the folder of a SavedImputer. Put it on a disk that the "
            "driver and all workers share, under the same path, or give the DependencyImputer itself, which goes along "
            "with the query."
        )
