"""Messages of an MQTT broker as a stream of Spark: the reader lives in the driver's planner, and ships what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from appulse.engines.decoding import MESSAGE, check_readable, decoded
from appulse.engines.mqtt import SCHEMA, Broker, Receiver, table_of
from appulse.engines.spool import Spool
from appulse.model.ddl import columns_of
from appulse.model.defects import UNDECODED

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which knows no limits
    ReadAllAvailable = ReadMaxRows = None  # type: ignore[assignment, misc]
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

__all__ = ["MqttSource", "mqtt_frame"]

_SPARK_SCHEMA = "topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, value BINARY"
_OFFSET, _SPOOL = "offset", "spool"  # of offsets; those of early checkpoints have no spool
_SLICE = 20_000  # rows of a task


def mqtt_frame(spark: SparkSession, broker: Broker, spool: str, most: int | None, schema: str | None) -> DataFrame:
    """A streaming frame of messages: ``topic, partition, offset, timestamp, value``, or what they hold as columns."""
    if schema is not None:
        check_readable(columns_of(schema))
    spark.dataSource.register(MqttSource)
    reader = spark.readStream.format(MqttSource.name())
    given: dict[str, Any] = {name: getattr(broker, name) for name in Broker.__dataclass_fields__}
    given |= {"topics": "\n".join(broker.topics), "spool": spool, "most": most, "columns": schema}
    return reader.options(**{name: str(value) for name, value in given.items() if value is not None}).load()


class MqttSource(DataSource):
    """The format ``appulse_mqtt``; its options are those of `appulse.MqttReader`, as text."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "appulse_mqtt"

    def schema(self) -> T.StructType | str:
        """The columns of messages, or of what they hold."""
        columns = self.options.get("columns")
        if columns is None:
            return _SPARK_SCHEMA
        return from_arrow_schema(columns_of(columns).append(pa.field(UNDECODED, MESSAGE)), prefer_timestamp_ntz=True)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """What reads; it connects once it is asked for offsets, which is in one process only."""
        return _Reader(dict(self.options))


class _Slice(InputPartition):
    """Some messages, on their way to a task."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are those of the spool. The spool and the session at the broker outlive the query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._target: int | None = None
        self._open: tuple[Spool, Receiver] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The first message that is kept."""
        return self._place(self._spool.begin)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """The end of what may be read now; raises `StateError` where the spool is not the one of ``start``."""
        end = self._receiver.wait(-1, 0.0) if self._target is None else self._target
        if start is None:
            return self._place(end)
        first = self._checked(start)
        if ReadMaxRows is not None and isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        return self._place(end) if end > first else start

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """How many messages a micro-batch takes."""
        most = self._options.get("most")
        return ReadAllAvailable() if most is None else ReadMaxRows(int(most))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Up to what the broker has now, and no further."""
        self._target = self._receiver.backlog()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The messages between two offsets, the same whenever it is asked."""
        first, last = self._checked(start), self._checked(end)
        return [_Slice(self._packed(at, min(at + _SLICE, last))) for at in range(first, last, _SLICE)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task."""
        columns = self._options.get("columns")
        with pa.ipc.open_stream(partition.value) as stream:
            if columns is None:
                yield from stream
            else:
                yield from decoded(stream.read_all(), columns_of(columns)).combine_chunks().to_batches()

    def commit(self, end: dict[str, Any]) -> None:
        """Messages up to here are never asked for again."""
        self._spool.forget(self._checked(end))

    def stop(self) -> None:
        """Leave the broker; it keeps what comes."""
        if self._open is not None:
            spool, receiver = self._open
            receiver.close()
            spool.close()
            self._open = None

    def _place(self, offset: int) -> dict[str, Any]:
        return {_OFFSET: offset, _SPOOL: self._spool.name}

    def _checked(self, place: dict[str, Any]) -> int:
        offset = int(place[_OFFSET])
        self._spool.check(offset, place.get(_SPOOL))
        return offset

    def _packed(self, first: int, last: int) -> bytes:
        table = table_of(self._spool.read(first, last))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue())

    @property
    def _spool(self) -> Spool:
        return self._opened[0]

    @property
    def _receiver(self) -> Receiver:
        return self._opened[1]

    @property
    def _opened(self) -> tuple[Spool, Receiver]:
        if self._open is None:
            given = dict(self._options)
            spool = Spool.within(given["spool"], int(given["most_bytes"]))
            broker = Broker(
                given["host"],
                tuple(given["topics"].split("\n")),
                int(given["port"]),
                given.get("client_id"),
                given.get("username"),
                given.get("password_env"),
                given["tls"] == "True",
                given["distinct"],
                int(given["most_bytes"]),
            )
            self._open = spool, Receiver(broker, spool)
        return self._open
