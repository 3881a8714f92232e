"""Files through Hadoop's file system, so that any path Spark can write is one we can tidy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of

from appulse.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """A folder on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public door to Hadoop's file systems
        self._jvm = jvm
        self.path = path
        self._root = jvm.org.apache.hadoop.fs.Path(path)
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._fs = self._root.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(self._root)
        # On a local disk Hadoop keeps checksums in files of their own; the two cannot be replaced as one.
        two = is_instance_of(self._gateway, self._fs, "org.apache.hadoop.fs.ChecksumFileSystem")
        self._plain = self._fs.getRawFileSystem() if two else self._fs

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def names(self, folder: str = "") -> list[str]:
        """Names in a folder; none if it is not there."""
        at = self._at(folder) if folder else self._root
        return [status.getPath().getName() for status in self._fs.listStatus(at)] if self._fs.exists(at) else []

    @property
    def local(self) -> str | None:
        """The path, if it is one of this machine's own disks, or of one that is mounted."""
        address = self._root.toUri()
        return str(address.getPath()) if address.getScheme() == "file" else None

    def read(self, name: str) -> str | None:
        """The text of a file; None if it is not there."""
        if not self._plain.exists(self._at(name)):
            return None
        stream = self._plain.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def make(self, name: str = "") -> None:
        """Make a folder, if it is not there."""
        self._fs.mkdirs(self._at(name) if name else self._root)

    def touch(self, name: str) -> None:
        """Make an empty file."""
        self._fs.create(self._at(name)).close()

    def write(self, name: str, text: str) -> None:
        """Put a file in place whole, or not at all; one that was there is there until then."""
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
        """Remove a file or folder, if it is there."""
        self._fs.delete(self._at(name), True)  # noqa: FBT003 - Java's flag: with all that is in it

    def move(self, source: str, target: str) -> None:
        """Rename within the folder."""
        if not self._fs.rename(self._at(source), self._at(target)):
            raise StorageError(f"Could not move {source} to {target} in {self.path}. Check rights and free space.")
