"""Files through Hadoop's file system, so that any path Spark can write is one we can tidy.

On a disk of this machine they are Python's own: each step through Hadoop is several calls of the JVM. Spark Connect has
no JVM at hand; there stores are Arrow's.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from appulse.engines.spark.settings import on_connect
from appulse.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Stores by Spark's names, and Arrow's; each has a file whole or not at all, and replaces one by the other.
_STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
_LOCAL = ("org.apache.hadoop.fs.RawLocalFileSystem", "appulse.LocalFiles$Raw")  # the latter is of LocalFiles.java


#: A file system of Arrow's, and a path in it.
Place: TypeAlias = tuple[fs.FileSystem, str]


class _Files(Protocol):
    """What is done with files of a folder, by their names in it."""

    def names(self, folder: str) -> list[str]: ...
    def read(self, name: str) -> str | None: ...
    def make(self, name: str) -> None: ...
    def touch(self, name: str) -> None: ...
    def write(self, name: str, text: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def move(self, source: str, target: str) -> bool: ...


class Folder:
    """A folder on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        #: The folder as Arrow has it; None where it is Hadoop's alone.
        self.arrow: Place | None
        self._files, self.arrow = _by_arrow(path) if on_connect(spark) else _by_hadoop(spark, path)

    @property
    def local(self) -> str | None:
        """The path, if it is one of this machine's own disks, or of one that is mounted."""
        return self.arrow[1] if self.arrow is not None and isinstance(self.arrow[0], fs.LocalFileSystem) else None

    def names(self, folder: str = "") -> list[str]:
        """Names in a folder; none if it is not there."""
        return self._files.names(folder)

    def read(self, name: str) -> str | None:
        """The text of a file; None if it is not there."""
        return self._files.read(name)

    def make(self, name: str = "") -> None:
        """Make a folder, if it is not there."""
        self._files.make(name)

    def touch(self, name: str) -> None:
        """Make an empty file."""
        self._files.touch(name)

    def write(self, name: str, text: str) -> None:
        """Put a file in place whole, or not at all; one that was there is there until then."""
        self._files.write(name, text)

    def remove(self, name: str) -> None:
        """Remove a file or folder, if it is there."""
        self._files.remove(name)

    def move(self, source: str, target: str) -> None:
        """Rename within the folder."""
        if not self._files.move(source, target):
            raise StorageError(f"Could not move {source} to {target} in {self.path}. Check rights and free space.")


def default_store(spark: SparkSession) -> str:
    """The store of paths that name none; empty if it is this machine's disk, or known to a server alone."""
    if on_connect(spark):
        return ""
    known = str(spark._jsc.hadoopConfiguration().get("fs.defaultFS", ""))  # noqa: SLF001
    return "" if known.startswith("file:") else known.rstrip("/")


def _by_hadoop(spark: SparkSession, path: str) -> tuple[_Files, Place | None]:
    hadoop = _Hadoop(spark, path)
    if hadoop.local is None:
        return hadoop, None
    return _Disk(Path(hadoop.local)) if hadoop.usual else hadoop, (fs.LocalFileSystem(), hadoop.local)


def _by_arrow(path: str) -> tuple[_Files, Place]:
    scheme = urlsplit(path).scheme
    if scheme in ("", "file"):
        local = str(Path(path.removeprefix("file:")).absolute())
        return _Disk(Path(local)), (fs.LocalFileSystem(), local)
    if scheme not in _STORES:
        raise StorageError(
            f"{path} is in a store that a client of Spark Connect does not reach: name a folder of a disk that it and "
            f"the server share, or of {', '.join(sorted(_STORES))}."
        )
    try:
        place = fs.FileSystem.from_uri(_STORES[scheme] + path.removeprefix(scheme))
    except (pa.ArrowException, OSError, ImportError) as problem:
        raise StorageError(f"{path} cannot be reached: {problem}. Check the address and its credentials.") from problem
    return _Store(*place), place


class _Disk:
    """A folder of this machine, as Hadoop's `LocalFileSystem` has it: checksums lie beside files, and go with them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        try:
            found = [path.name for path in (self._root / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in found if not (name.startswith(".") and name.endswith(".crc"))]

    def read(self, name: str) -> str | None:
        try:
            return (self._root / name).read_bytes().decode(errors="replace")  # as Java does
        except (FileNotFoundError, NotADirectoryError):
            return None

    def make(self, name: str) -> None:
        (self._root / name).mkdir(parents=True, exist_ok=True)

    def touch(self, name: str) -> None:
        at = self._parent(name)
        at.write_bytes(b"")
        _checksum(at).unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        at = self._parent(name)
        fresh = _fresh(at)
        fresh.write_bytes(text.encode())
        fresh.replace(at)

    def remove(self, name: str) -> None:
        at = self._root / name
        if at.is_dir() and not at.is_symlink():
            shutil.rmtree(at)
            return
        at.unlink(missing_ok=True)
        _checksum(at).unlink(missing_ok=True)

    def move(self, source: str, target: str) -> bool:
        one, other = self._root / source, self._parent(target)
        one.replace(other)
        try:
            _checksum(one).replace(_checksum(other))
        except FileNotFoundError:
            _checksum(other).unlink(missing_ok=True)
        return True

    def _parent(self, name: str) -> Path:
        at = self._root / name
        with suppress(FileExistsError):  # a file: the next step says so
            at.parent.mkdir(parents=True, exist_ok=True)
        return at


class _Store:
    """A folder of an object store, by Arrow."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._fs, self._root = files, root.rstrip("/")

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def names(self, folder: str) -> list[str]:
        found = self._fs.get_file_info(fs.FileSelector(self._at(folder), allow_not_found=True))
        return [info.base_name for info in found]

    def read(self, name: str) -> str | None:
        try:
            with self._fs.open_input_stream(self._at(name), compression=None) as stream:
                return bytes(stream.read()).decode(errors="replace")
        except FileNotFoundError:
            return None

    def make(self, name: str) -> None:
        self._fs.create_dir(self._at(name))

    def touch(self, name: str) -> None:
        self.write(name, "")

    def write(self, name: str, text: str) -> None:
        with self._fs.open_output_stream(self._at(name), compression=None) as stream:
            stream.write(text.encode())

    def remove(self, name: str) -> None:
        at = self._at(name)
        kind = self._fs.get_file_info(at).type
        if kind == fs.FileType.Directory:
            self._fs.delete_dir(at)
        elif kind == fs.FileType.File:
            self._fs.delete_file(at)

    def move(self, source: str, target: str) -> bool:
        self._fs.move(self._at(source), self._at(target))
        return True


def _checksum(at: Path) -> Path:
    return at.with_name(f".{at.name}.crc")


def _fresh(at: Path) -> Path:
    return at.with_name(f".{at.name}.new")


class _Hadoop:
    """A folder through the JVM."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        from py4j.java_gateway import is_instance_of  # which a client of Spark Connect does not have

        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public door to Hadoop's file systems
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path  # once: to look a class up takes a call for each part of its name
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        root = self._path(path)
        self._fs = root.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(root)
        # On a local disk Hadoop keeps checksums in files of their own; the two cannot be replaced as one.
        two = is_instance_of(self._gateway, self._fs, "org.apache.hadoop.fs.ChecksumFileSystem")
        self._plain = self._fs.getRawFileSystem() if two else self._fs

    @property
    def local(self) -> str | None:
        address = self._root.toUri()
        return str(address.getPath()) if address.getScheme() == "file" else None

    @property
    def usual(self) -> bool:
        """Whether a local path has the file system that Hadoop has for it, and no other by a user's settings."""
        # That with checksums may be Hadoop's own, Hive's or ours, which are the same.
        return self._plain is not self._fs and str(self._plain.getClass().getName()) in _LOCAL

    def _at(self, name: str) -> Any:
        return self._path(self._root, name) if name else self._root

    def names(self, folder: str) -> list[str]:
        at = self._at(folder)
        return [status.getPath().getName() for status in self._fs.listStatus(at)] if self._fs.exists(at) else []

    def read(self, name: str) -> str | None:
        if not self._plain.exists(self._at(name)):
            return None
        stream = self._plain.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def make(self, name: str) -> None:
        self._fs.mkdirs(self._at(name))

    def touch(self, name: str) -> None:
        self._fs.create(self._at(name)).close()

    def write(self, name: str, text: str) -> None:
        folder, _, last = name.rpartition("/")
        fresh = f"{folder}/.{last}.new" if folder else f".{last}.new"
        stream = self._plain.create(self._at(fresh))
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if self._plain.rename(self._at(fresh), self._at(name)):
            return
        # Not every file system renames over a file unless told to. On a local disk this way would be two steps.
        options = self._jvm.org.apache.hadoop.fs.Options.Rename
        overwrite = self._gateway.new_array(options, 1)
        overwrite[0] = options.OVERWRITE
        self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), self._conf).rename(
            self._at(fresh), self._at(name), overwrite
        )

    def remove(self, name: str) -> None:
        self._fs.delete(self._at(name), True)  # noqa: FBT003 - Java's flag: with all that is in it

    def move(self, source: str, target: str) -> bool:
        return bool(self._fs.rename(self._at(source), self._at(target)))
