"""Batches as rows of a database table, each batch once."""

from __future__ import annotations

import logging
import re
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql.utils import to_str

from appulse.engines.spark.failures import spark_errors
from appulse.errors import AppulseError, BadArgument, StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Whole numbers, since not every database compares and indexes the type that Spark gives to text.
_COLUMNS = ("query_id", "batch_id")
_ATTEMPTS = 3
# A database that restarts, or a network that breaks: it is waited for, for some 30 seconds.
_AWAY = re.compile(
    "Connection refused|Connection reset|connection attempt failed|connection has been closed|terminating connection"
    "|database system is (?:starting|shutting|in recovery)|Communications link failure|I/O error occurred"
)
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # seconds
_DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
}
_LOG = logging.getLogger("appulse")


def known_driver(options: dict[str, Any]) -> str | None:
    """The driver of an address: Java finds none by itself among jars that came with the session."""
    url = next(str(value) for name, value in options.items() if name.lower() == "url")
    return next((driver for kind, driver in _DRIVERS.items() if url.startswith(f"jdbc:{kind}:")), None)


def replace_rows(frame: DataFrame, options: dict[str, Any], query: str, number: int) -> None:
    """Write batch ``number`` to the table that ``options`` name, each batch once.

    Waits for a database that is away, and raises `StorageError` if it stays away. See `_replace_rows`.
    """
    for attempt, wait in enumerate((*_WAITS, None), 1):
        try:
            return _replace_rows(frame, options, query, number)
        except spark_errors() as problem:
            away = _AWAY.search(str(problem))
            if away is None:
                raise
            if wait is None:
                raise StorageError(
                    f"The database of table {options.get('dbtable')} did not answer in {attempt} attempts over "
                    f"{sum(_WAITS):.0f} s: {away[0]}. Start again with the same checkpoint once it is back: no row is "
                    "lost or doubled."
                ) from problem
            _LOG.warning("The database is away (%s); attempt %d for batch %d in %s s.", away[0], attempt, number, wait)
            time.sleep(wait)
    return None


def _replace_rows(frame: DataFrame, options: dict[str, Any], query: str, number: int) -> None:
    """Write batch ``number`` to the table that ``options`` name, in place of what an earlier attempt left.

    Spark commits the partitions of a frame one by one, so that attempt may have left a part. Rows carry whose they
    are: ``query`` (hexadecimal) as ``query_id``, and ``batch_id``. Later batches of the query go too: a checkpoint
    that was put back does not know them. Raises `BadArgument` if the table is there and lacks the two columns.
    """
    own = (int(query, 16), number)
    rows = frame.withColumns({name: F.lit(value).cast("long") for name, value in zip(_COLUMNS, own, strict=True)})
    count = rows.count()
    with closing(_Table(frame.sparkSession, options)) as table:
        if not table.exists():
            _append(rows.limit(0), options)
            table.index()
        for _ in range(_ATTEMPTS):
            table.delete_from(*own)
            _append(rows, options)
            if table.count(*own) <= count:
                return
    raise AppulseError(
        f"Table {table.name} has more than the {count} rows of batch {number} after each of {_ATTEMPTS} attempts: "
        "tasks that Spark tried again had written theirs before they failed. Its log says why they failed."
    )


def _append(frame: DataFrame, options: dict[str, Any]) -> None:
    frame.write.format("jdbc").options(**options).mode("append").save()


class _Table:
    """A table over a connection of the driver's, made as Spark's writer makes those of its tasks."""

    def __init__(self, spark: SparkSession, options: dict[str, Any]) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public door to JDBC connections
        texts = {name: to_str(value) for name, value in options.items() if value is not None}
        self._jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
        self._options = self._jdbc.JdbcOptionsInWrite(jvm.PythonUtils.toScalaMap(texts))
        self._dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._options.url())
        self._connection = self._dialect.createConnectionFactory(self._options).apply(-1)
        self.name = str(self._options.table())

    def close(self) -> None:
        self._connection.close()

    def exists(self) -> bool:
        return bool(self._jdbc.JdbcUtils.tableExists(self._connection, self._options))

    def index(self) -> None:
        """Have the rows of a batch found without a walk through the table."""
        name = f"appulse_{crc32(self.name.encode()):08x}"
        with suppress(Py4JJavaError):  # what the rights or the database do not allow is slower, and no less right
            self._run(f"CREATE INDEX {name} ON {self.name} ({', '.join(self._columns())})")

    def delete_from(self, query: int, number: int) -> None:
        """Delete the rows of a batch and of all that follow it."""
        own, batch = self._columns()
        where = f"{own} = {query} AND {batch} >= {number}"
        self._run(f"DELETE FROM {self.name} WHERE {where}")  # noqa: S608 - the user's own table, and numbers

    def count(self, query: int, number: int) -> int:
        """How many rows of a batch there are."""
        own, batch = self._columns()
        where = f"{own} = {query} AND {batch} = {number}"
        with closing(self._connection.createStatement()) as statement:
            found = statement.executeQuery(f"SELECT COUNT(*) FROM {self.name} WHERE {where}")  # noqa: S608 - as above
            found.next()
            return int(found.getLong(1))

    def _run(self, sql: str) -> None:
        with closing(self._connection.createStatement()) as statement:
            statement.executeUpdate(sql)

    def _columns(self) -> list[str]:
        """Our two columns as the table spells them, quoted."""
        with closing(self._connection.createStatement()) as statement:
            about = statement.executeQuery(self._dialect.getSchemaQuery(self.name)).getMetaData()
            names = [str(about.getColumnName(i + 1)) for i in range(about.getColumnCount())]
        spelt = {name.lower(): name for name in names}
        if missing := [name for name in _COLUMNS if name not in spelt]:
            raise BadArgument(
                f"Table {self.name} has no column {' and no '.join(missing)}, which distinguishes batches. "
                "Add them, of type BIGINT, or name a table that is not there yet."
            )
        return [str(self._dialect.quoteIdentifier(spelt[name])) for name in _COLUMNS]
