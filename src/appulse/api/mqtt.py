"""Messages of sensors that speak MQTT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import pyarrow as pa

from appulse.api.running import Session
from appulse.arguments import NAME, Count, Folder, Name, NotNegative, checked, one_of, several, whole
from appulse.engines.mqtt import DISTINCT, Broker, Receiver, need_mqtt, table_of
from appulse.engines.spool import Spool

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["MqttReader", "mqtt_stream"]

_Port: TypeAlias = Annotated[int, whole(1, 65_535)]
_Topics: TypeAlias = Annotated[Any, several(NAME, "topics such as 'vans/+/position'", least=1, single=str)]
_Distinct: TypeAlias = Annotated[str, one_of(*DISTINCT)]
_Offset: TypeAlias = Annotated[int, whole(0)]


def _broker(arguments: dict[str, Any]) -> Broker:
    """The broker that the arguments of a call name."""
    need_mqtt()
    return Broker(**{field.name: arguments[field.name] for field in fields(Broker)})


@checked
class MqttReader:
    """Read messages of an MQTT broker in this process; each is on disk before it is acknowledged.

    Arguments:
    * ``host, port``: of the broker.
    * ``topics``: one or several, with ``+`` and ``#``; they are asked for with QoS 1.
    * ``spool``: a folder for messages that are not settled yet, and for the name of the session, which the broker keeps
      while nobody reads.
    * ``client_id``: the name of the session. None: the one in the spool, at first one made up.
    * ``username``: who reads, to the broker.
    * ``password_env``: the variable of the environment that holds the password of ``username``.
    * ``tls``: whether the connection is encrypted.
    * ``distinct``: the broker sends again what it does not know to have arrived; ``"redelivered"`` leaves out what is
      there already. A publisher may send a message twice, too: ``"payload"`` also leaves out messages that equal one of
      the latest 20,000 in topic and payload, for payloads with a time or a number in them. ``"none"`` leaves out
      nothing.
    * ``most_bytes``: with more in the spool nothing more is read, until some are settled.

    The object is a context manager; messages have offsets, from 0 on, that stay the same after any restart. ``batches``
    and ``read`` return tables with the columns ``topic, partition, offset, timestamp, value``, as those of Kafka, and
    ``settle`` lets messages go.

    Raises `BadArgument` without the extra ``appulse[mqtt]`` and for a wrong argument, and `StorageError` where the
    spool is in use or cannot be used, or the broker refuses the session.

    >>> import appulse as ap
    >>> def read(start):
    ...     with ap.MqttReader("broker", "vans/+/position", spool="spool") as reader:
    ...         for end, messages in reader.batches(start, wait=1.0):
    ...             print(messages["value"])  # do something with them, and write down `end`
    ...             reader.settle(end)
    """

    def __init__(
        self,
        host: Name,
        topics: _Topics,
        *,
        spool: Folder,
        port: _Port = 1883,
        client_id: Name | None = None,
        username: Name | None = None,
        password_env: Name | None = None,
        tls: bool = False,
        distinct: _Distinct = "redelivered",
        most_bytes: Count = 1 << 30,
    ) -> None:
        broker = _broker(locals())
        self._spool = Spool.within(spool, most_bytes)
        try:
            self._receiver = Receiver(broker, self._spool)
        except BaseException:
            self._spool.close()
            raise

    @property
    def begin(self) -> int:
        """The offset of the first message that is kept."""
        return self._spool.begin

    @property
    def end(self) -> int:
        """The offset of the next message."""
        return self._spool.end

    @property
    def spool_id(self) -> str:
        """The name of the spool, made up with its folder: write it down with offsets, and give both to `check`."""
        return self._spool.name

    @checked
    def check(self, start: _Offset, spool_id: Name | None = None) -> None:
        """Raise `StateError` where messages from an offset on are gone, or the offset is of another spool."""
        self._spool.check(start, spool_id)

    @checked
    def read(self, start: _Offset, end: _Offset) -> pa.Table:
        """The messages from one offset up to another, without it: the same at each call."""
        return table_of(self._spool.read(start, end))

    @checked
    def batches(
        self, start: _Offset, *, most: Count = 10_000, wait: NotNegative = 0.0
    ) -> Iterator[tuple[int, pa.Table]]:
        """The messages from an offset on that are there, after at most ``wait`` seconds: tables with their end.

        Raises `StateError` as `check` does.
        """
        return self._batches(start, most, wait)

    def _batches(self, start: int, most: int, wait: float) -> Iterator[tuple[int, pa.Table]]:
        self._spool.check(start)
        end = self._receiver.wait(start, wait)
        while start < end:
            stop = min(start + most, end)
            yield stop, table_of(self._spool.read(start, stop))
            start = stop

    @checked
    def backlog(self, seconds: NotNegative | None = None) -> int:
        """Wait until the broker has sent what it had kept, at most so many seconds (None: 10); the end of it.

        That is after half a second without a message. Raises `StorageError` where the broker does not answer in time.
        """
        return self._receiver.backlog(seconds)

    @checked
    def settle(self, end: _Offset) -> None:
        """Messages before an offset are never asked for again: their files may go."""
        self._spool.forget(end)

    def close(self) -> None:
        """Stop reading. The broker keeps what comes from now on."""
        self._receiver.close()
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@checked
def mqtt_stream(
    spark: Session,
    host: Name,
    topics: _Topics,
    *,
    spool: Folder,
    port: _Port = 1883,
    client_id: Name | None = None,
    username: Name | None = None,
    password_env: Name | None = None,
    tls: bool = False,
    distinct: _Distinct = "redelivered",
    most_bytes: Count = 1 << 30,
    most: Count | None = None,
    schema: Name | None = None,
) -> Any:
    """Messages of an MQTT broker as a streaming Spark frame: ``topic, partition, offset, timestamp, value``.

    The driver receives and spools them, and hands them to tasks; the offsets are part of the query's checkpoint, so
    each message is in its answers once, whatever is killed.

    Arguments:
    * ``spark``: the session.
    * ``spool``: as in `MqttReader`; each query needs a spool of its own, on a disk of the driver.
    * ``most``: how many messages a micro-batch takes. None: all there are, as always before Spark 4.2.
    * ``schema``: columns of JSON messages, ``"id STRING, at TIMESTAMP, x DOUBLE"``. The frame has these, decoded as in
      a job file, and ``_undecoded`` as of `decode_messages`. None: the messages themselves.
    * ``host, topics, port, client_id, username, password_env, tls, distinct, most_bytes``: as in `MqttReader`.

    Returns a streaming Spark frame.

    Raises `BadArgument` without the extra ``appulse[mqtt]`` and for a wrong argument.

    >>> import appulse as ap
    >>> def fixes(spark):
    ...     columns = "id STRING, at DOUBLE, x DOUBLE, y DOUBLE"
    ...     return ap.mqtt_stream(spark, "broker", "vans/#", spool="spool", schema=columns)
    """
    from appulse.engines.spark.mqtt import mqtt_frame

    broker = _broker(locals())
    return mqtt_frame(spark, broker, str(Path(spool).resolve()), most, schema)
