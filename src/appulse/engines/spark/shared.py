"""What is too large to travel with each task: a file that Spark brings to every machine, read once by each worker.

A broadcast would do, but workers of stateful operators receive none.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

#: Bytes that may travel with tasks. Spark itself makes a broadcast of a function from 1 MiB on.
SMALL = 1 << 18


@dataclass(frozen=True)
class SharedFile(Generic[T]):
    """A value in a file, by its name among those of Spark."""

    name: str

    def get(self) -> T:
        """The value."""
        value: T = _read(self.name)
        return value


def shared(value: Any, spark: SparkSession) -> SharedFile[Any] | None:
    """A value as a file; None where it may as well travel with the tasks, or on Spark Connect, which has no files."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    if len(data) <= SMALL or not hasattr(spark, "_jsc"):
        return None
    path = Path(driver_folder().name) / f"{uuid4().hex}.shared"
    path.write_bytes(data)
    spark.sparkContext.addFile(str(path))
    return SharedFile(path.name)


@cache
def driver_folder() -> TemporaryDirectory[str]:
    """Where the driver keeps the files that it shares, as long as it lives."""
    return TemporaryDirectory(prefix="appulse-")


# Workers outlive queries.
@lru_cache(maxsize=8)
def _read(name: str) -> Any:
    from pyspark import SparkFiles  # which the client of Spark Connect does not have

    return pickle.loads(Path(SparkFiles.get(name)).read_bytes())  # noqa: S301 - our own bytes, as tasks themselves are
