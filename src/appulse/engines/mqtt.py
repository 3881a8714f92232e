"""Messages of an MQTT broker: each is on disk before the broker hears that it came, and has an offset to go on from."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.engines.spool import Message, Record, Spool
from appulse.errors import BadArgument, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paho.mqtt.client import Client, MQTTMessage

__all__ = ["DISTINCT", "SCHEMA", "Broker", "Receiver", "need_mqtt", "table_of"]

_LOG = logging.getLogger("appulse")
DISTINCT = ("redelivered", "payload", "none")
#: Columns of messages; as those of Kafka have them, so that they are decoded in the same way.
SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "value": pa.binary(),
    }
)
#: Fewer than there are ids of packets, so that none is used twice among them.
_REMEMBERED = 20_000
_FLUSH_ROWS, _FLUSH_SECONDS = 1_000, 0.02
_WAITS = (0.1, 5.0)  # seconds between attempts to connect, the least and the most
_QOS = 1
#: Seconds to wait at most for what a broker has kept.
BACKLOG = 10.0
_IDLE = 0.5  # seconds without a message after which a backlog is through


@dataclass(frozen=True)
class Broker:
    """Where messages come from. ``password_env`` names what the environment holds."""

    host: str
    topics: tuple[str, ...]
    port: int = 1883
    client_id: str | None = None
    username: str | None = None
    password_env: str | None = None
    tls: bool = False
    distinct: str = "redelivered"
    most_bytes: int = 1 << 30


def need_mqtt() -> None:
    """Raise `BadArgument` unless paho-mqtt is installed."""
    try:
        import paho.mqtt.client
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "paho":
            raise
        raise BadArgument(
            "MQTT needs the package paho-mqtt, which is not installed. Install it: pip install 'appulse[mqtt]'."
        ) from None
    del paho


def table_of(records: Sequence[Record]) -> pa.Table:
    """Records as a table."""
    return pa.table(
        [
            [one.message.topic for one in records],
            [0] * len(records),
            [one.offset for one in records],
            [one.message.received for one in records],
            [one.message.payload for one in records],
        ],
        schema=SCHEMA,
    )


class Receiver:
    """Takes in messages of a broker, in a thread of its own, until it is closed.

    The session at the broker outlives this one, so what comes meanwhile waits there. A message is acknowledged once it
    is on disk. The broker sends again what it does not know to have arrived; what is in the spool already is
    acknowledged and left out. Where the spool has ``most_bytes`` nothing more is read, and the broker keeps it.
    """

    def __init__(self, broker: Broker, spool: Spool) -> None:
        need_mqtt()
        self.broker, self.spool = broker, spool
        self._pending: list[Message] = []
        self._pending_names: set[bytes] = set()
        self._again: list[int] = []  # packets to acknowledge that were here already
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._came = time.monotonic()
        self._stop, self._arrived = Event(), Condition()
        self._failure: str | None = None
        self._trouble = ""  # the latest, while there is no connection
        self._subscribed = False
        self._name, self._same_topics = self._session()
        for record in spool.read(max(spool.begin, spool.end - _REMEMBERED), spool.end):
            self._remember(record.message)
        self._client = self._made()
        self._thread = Thread(target=self._run, name="appulse-mqtt", daemon=True)
        self._thread.start()

    def wait(self, after: int, seconds: float) -> int:
        """The end of the spool, once it is beyond an offset or the time is over; raises `StorageError` if refused."""
        with self._arrived:
            self._arrived.wait_for(lambda: self.spool.end > after or self._failure is not None, seconds)
        if self._failure is not None and self.spool.end <= after:
            raise StorageError(self._failure)
        return self.spool.end

    def backlog(self, seconds: float | None = None) -> int:
        """The end of the spool once the broker has sent what was waiting, or the time is over.

        Raises `StorageError` without a broker: what is waiting there is not known then.
        """
        seconds = BACKLOG if seconds is None else seconds
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._failure is not None:
                raise StorageError(self._failure)
            if self._subscribed and time.monotonic() - self._came > _IDLE:
                return self.spool.end
            time.sleep(0.02)
        if not self._subscribed:
            raise StorageError(
                f"The MQTT broker {self.broker.host}:{self.broker.port} did not answer within {seconds:g} seconds"
                f"{self._trouble}. Check its address; once it is back, start again: no message is lost."
            )
        _LOG.warning(
            "MQTT broker %s:%d still sends after %g seconds: the rest is not of this run, and stays with the broker.",
            self.broker.host,
            self.broker.port,
            seconds,
        )
        return self.spool.end

    def close(self) -> None:
        """Stop, and let the broker keep what comes from now on."""
        self._stop.set()
        self._thread.join(10)

    # --- the thread

    def _run(self) -> None:
        client, wait = self._client, _WAITS[0]
        while not self._stop.is_set():
            try:
                if not client.is_connected() and client.socket() is None:
                    client.connect(self.broker.host, self.broker.port, keepalive=30)
                    self._came = time.monotonic()
                self._step(client)
                if client.socket() is not None:
                    wait = _WAITS[0]
                    continue
            except (OSError, ValueError) as error:  # StorageError is an OSError: a disk that is full, for now
                self._trouble = f": {error}"
                _LOG.warning("MQTT broker %s:%d: %s", self.broker.host, self.broker.port, error)
                client.disconnect()
            self._pending.clear()  # not acknowledged: the broker sends them again
            self._pending_names.clear()
            self._again.clear()
            self._subscribed = False
            self._stop.wait(wait)
            wait = min(2 * wait, _WAITS[1])
        self._flush(client)
        client.disconnect()
        client.loop(0.05)

    def _step(self, client: Client) -> None:
        """Read what has come, and write it once nothing more comes at the moment."""
        if self.spool.nbytes >= self.broker.most_bytes and not self._pending:
            client.loop_misc()
            self._stop.wait(0.05)
            return
        before = len(self._pending)
        begun = time.monotonic()
        failed = client.loop(0.002 if before else 0.05)
        if failed or client.socket() is None:
            return
        still = len(self._pending) == before
        if still or len(self._pending) >= _FLUSH_ROWS or begun - self._came > _FLUSH_SECONDS:
            self._flush(client)

    def _flush(self, client: Client) -> None:
        """Write what is pending, then acknowledge it."""
        if not self._pending and not self._again:
            return
        pending, again, self._pending, self._again = self._pending, self._again, [], []
        self._pending_names.clear()
        self.spool.append(pending)
        for message in pending:
            self._remember(message)
        for packet in [*again, *(message.packet for message in pending)]:
            if packet:
                client.ack(packet, _QOS)
        with self._arrived:
            self._arrived.notify_all()

    def _made(self) -> Client:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        broker = self.broker
        client = Client(CallbackAPIVersion.VERSION2, client_id=self._name, clean_session=False, manual_ack=True)
        if broker.username is not None:
            client.username_pw_set(broker.username, _secret(broker.password_env))
        if broker.tls:
            client.tls_set()
        client.on_connect, client.on_message = self._on_connect, self._on_message
        return client

    def _on_connect(self, client: Client, _: Any, flags: Any, reason: Any, __: Any) -> None:
        if reason.is_failure:
            broker = self.broker
            self._failure = f"The MQTT broker {broker.host}:{broker.port} refused the connection: {reason}."
            with self._arrived:
                self._arrived.notify_all()
            return
        self._failure, self._trouble = None, ""
        if not flags.session_present and self.broker.distinct == "redelivered":  # ids of packets begin anew
            self._known.clear()
        if not (flags.session_present and self._same_topics):
            client.subscribe([(topic, _QOS) for topic in self.broker.topics])
            self._keep_session()
        self._subscribed, self._came = True, time.monotonic()

    def _on_message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        self._came = time.monotonic()
        packet = message.mid if message.qos else 0
        found = Message(message.topic, bytes(message.payload), time.time_ns() // 1000, packet)
        name = self._name_of(found)
        if name is not None and (name in self._known or name in self._pending_names):
            if packet:
                self._again.append(packet)
            return
        self._pending.append(found)
        if name is not None:
            self._pending_names.add(name)

    # --- what is known already

    def _name_of(self, message: Message) -> bytes | None:
        """What another delivery of a message has in common with it; None where there is nothing."""
        if self.broker.distinct == "none" or (self.broker.distinct == "redelivered" and not message.packet):
            return None
        packet = message.packet if self.broker.distinct == "redelivered" else 0
        text = message.topic.encode() + b"\0" + message.payload
        return blake2b(text, digest_size=16, salt=packet.to_bytes(2, "little")).digest()

    def _remember(self, message: Message) -> None:
        name = self._name_of(message)
        if name is None:
            return
        self._known[name] = None
        self._known.move_to_end(name)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _session(self) -> tuple[str, bool]:
        """The name of the session at the broker, and whether it was for the same topics."""
        try:
            kept = json.loads((self.spool.folder / "session.json").read_text())
        except (OSError, ValueError):
            kept = {}
        name = self.broker.client_id or kept.get("client_id") or f"appulse-{uuid.uuid4().hex[:12]}"
        return str(name), kept.get("topics") == list(self.broker.topics) and kept.get("client_id") == name

    def _keep_session(self) -> None:
        file = self.spool.folder / "session.json"
        other = file.with_suffix(".new")
        other.write_text(json.dumps({"client_id": self._name, "topics": list(self.broker.topics)}))
        other.replace(file)
        self._same_topics = True


def _secret(name: str | None) -> str | None:
    if name is None:
        return None
    if name not in os.environ:
        raise BadArgument(f"The password is {name} of the environment, which has none. Set it and start again.")
    return os.environ[name]
