"""Messages of a real MQTT broker while its reader and the broker itself are killed.

    python -m benchmarks.mqtt --quick --json

A publisher sends numbered messages with QoS 1 to Mosquitto, which keeps sessions on disk. A reader of its own process
spools them and writes what it reads to files named by their offsets, as a job does whose checkpoint has the offsets; it
goes on behind the last file. Ten kills: five of the reader (SIGKILL), which leaves out what the broker sends again by
the ids of packets, and five of the broker (three times SIGTERM, twice SIGKILL), where the publisher sends again, too,
and equal payloads are left out.

* ``mqtt_lost``: messages that the publisher saw accepted and that are in no file; ``mqtt_doubled``: those in two.
* ``mqtt_kills``; ``mqtt_messages``: how many were sent.
* ``mqtt_per_second``: messages a second that one reader puts on disk and acknowledges, the broker ahead of it.

Without Mosquitto all figures are null.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import appulse as ap
from benchmarks.harness import arguments, report, say, scratch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from paho.mqtt.client import Client

__all__ = ["MOSQUITTO", "Mosquitto", "Publisher", "broker", "figures"]

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
_TOPIC = "vans/1"
_KILLS: dict[str, tuple[int, ...]] = {
    "reader": (signal.SIGKILL,) * 5,
    "broker": (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM),
}
_READER = """
import os, sys
from pathlib import Path
import pyarrow.parquet as pq
import appulse as ap
port, spool, out, distinct = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
at = max((int(file.stem.split("-")[1]) for file in out.glob("*-*.parquet")), default=0)
with ap.MqttReader("127.0.0.1", "vans/+", spool=spool, port=port, distinct=distinct) as reader:
    print("ready", flush=True)
    while True:
        for end, table in reader.batches(at, most=500, wait=0.1):
            pq.write_table(table, out / "part")
            os.replace(out / "part", out / f"{at:012}-{end:012}.parquet")
            at = end
            reader.settle(end)
"""


class Mosquitto:
    """A broker whose sessions outlive it."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        folder.mkdir(parents=True, exist_ok=True)
        self._conf = folder / "mosquitto.conf"
        self._conf.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\n"
            f"max_queued_messages 0\nuser {os.environ.get('USER', 'root')}\n"
        )
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [str(MOSQUITTO), "-c", str(self._conf)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError("Mosquitto did not start.")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it by a signal, if it runs."""
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(10)


@contextmanager
def broker(folder: Path) -> Iterator[Mosquitto]:
    """A broker as long as it is needed."""
    found = Mosquitto(folder)
    try:
        yield found
    finally:
        found.stop(signal.SIGKILL)


class Publisher:
    """Publishes with QoS 1, and knows which messages the broker has accepted."""

    def __init__(self, port: int) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self._client: Client = Client(CallbackAPIVersion.VERSION2, client_id="publisher", clean_session=False)
        self._client.max_queued_messages_set(0)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_publish = self._on_publish
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._sent = self._accepted = 0

    def send(self, rows: list[dict[str, Any]], topic: str = _TOPIC) -> None:
        """Publish rows as JSON."""
        for row in rows:  # without a connection it is kept until there is one
            self._client.publish(topic, json.dumps(row), qos=1)
            self._sent += 1

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until the broker has accepted them all."""
        until = time.monotonic() + seconds
        while self._accepted < self._sent:
            if time.monotonic() > until:
                raise RuntimeError(f"The broker has taken {self._accepted} of {self._sent} messages.")
            time.sleep(0.005)

    def _on_publish(self, *_: Any) -> None:
        self._accepted += 1

    def close(self) -> None:
        """Leave the broker."""
        self._client.disconnect()
        self._client.loop_stop()


def _child(port: int, folder: Path, distinct: str) -> subprocess.Popen[str]:
    (folder / "out").mkdir(exist_ok=True)
    command = [sys.executable, "-c", _READER, str(port), str(folder / "spool"), str(folder / "out"), distinct]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if started.stdout is None or started.stdout.readline() != "ready\n":
        raise RuntimeError("The reader did not start.")
    started.stdout.close()
    return started


def _killed(folder: Path, victim: str, messages: int) -> Counter[int]:
    """How often each message is in a file, after kills of a victim."""
    kills = _KILLS[victim]
    distinct = "redelivered" if victim == "reader" else "payload"
    with broker(folder / "broker") as server:
        reading = _child(server.port, folder, distinct)
        time.sleep(0.5)
        publisher = Publisher(server.port)
        each = messages // (2 * len(kills))
        for i, number in enumerate(kills):
            for half in range(2):
                first = (2 * i + half) * each
                for at in range(first, first + each, 20):
                    publisher.send([{"number": n, "at": n / 10} for n in range(at, min(at + 20, first + each))])
                    time.sleep(0.005)
                if half:
                    break
                if victim == "reader":
                    reading.kill()
                    reading.wait()
                    reading = _child(server.port, folder, distinct)
                else:
                    server.stop(number)
                    server.start()
        publisher.settle()
        publisher.close()
        _wait_until_still(folder / "out")
        reading.kill()
        reading.wait()
    found: Counter[int] = Counter()
    for file in sorted((folder / "out").glob("*-*.parquet")):
        found.update(json.loads(value)["number"] for value in pq.read_table(file)["value"].to_pylist())
    say(f"{victim}: {len(found)} of {2 * len(kills) * each} messages, {found.total()} rows, {len(kills)} kills")
    for number in range(2 * len(kills) * each):
        found.setdefault(number, 0)
    return found


def _wait_until_still(out: Path, seconds: float = 4.0) -> None:
    """Until no file has come for a while."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        now = sum(1 for _ in out.glob("*-*.parquet"))
        if now != count:
            count, since = now, time.monotonic()
        time.sleep(0.1)


def _rate(folder: Path, messages: int) -> float:
    """Messages a second of one reader, which the broker has ready."""
    with broker(folder / "broker") as server:
        given: dict[str, Any] = {"spool": folder / "spool", "port": server.port}
        with ap.MqttReader("127.0.0.1", "vans/+", **given) as reader:
            reader.backlog()
        publisher = Publisher(server.port)
        publisher.send([{"number": n, "at": n / 10} for n in range(messages)])
        publisher.settle()
        publisher.close()
        begun = time.perf_counter()
        with ap.MqttReader("127.0.0.1", "vans/+", **given) as reader:
            while reader.end < messages and time.perf_counter() - begun < 60:
                time.sleep(0.01)
            return reader.end / (time.perf_counter() - begun)


def figures(*, quick: bool) -> dict[str, float | None]:
    """All figures."""
    names = ("mqtt_lost", "mqtt_doubled", "mqtt_kills", "mqtt_messages", "mqtt_per_second")
    if MOSQUITTO is None:
        say("no Mosquitto: nothing is measured")
        return dict.fromkeys(names)
    messages = 4_000 if quick else 20_000
    counts: list[int] = []
    for victim in _KILLS:
        with scratch() as folder:
            counts += _killed(folder, victim, messages).values()
    with scratch() as folder:
        rate = _rate(folder, messages)
    lost, doubled = sum(count == 0 for count in counts), sum(count > 1 for count in counts)
    values = (lost, doubled, sum(map(len, _KILLS.values())), len(counts), rate)
    return dict(zip(names, map(float, values), strict=True))


def main() -> None:
    """Print the figures."""
    given = arguments(__doc__ or "")
    report(figures(quick=given.quick), as_json=given.json)


if __name__ == "__main__":
    main()
