"""Servers that tests and benchmarks start on this machine: Kafka, PostgreSQL, a Spark cluster, Spark Connect.

Each listens on loopback only and ends with the process that started it. `Unavailable` says what cannot be had.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from appulse.engines.spark.java import cache_folder, find_java
from appulse.engines.spark.settings import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

HOST = "127.0.0.1"
BROKER = ("org.apache.kafka:kafka_2.13:4.3.1",)
#: For Spark 4.2 and 4.3: Spark's connector, and what it needs that Spark does not bring.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
POSTGRES_DRIVER = ("org.postgresql:postgresql:42.7.14",)
#: For Spark 4.2 alone.
DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
#: For Spark 4.0 alone.
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",)
_PATIENCE = 60.0  # seconds for a server to come up
_LIMIT = 300.0  # seconds for Maven
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>appulse</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""


class Unavailable(Exception):
    """A server or a package that cannot be had here, and why."""


def jars(packages: Sequence[str], *, alone: bool = True) -> list[Path]:
    """The jar files of Maven packages, ``alone`` or with all that they depend on; fetched once for each machine."""
    name = hashlib.sha256(repr((tuple(packages), alone)).encode()).hexdigest()[:12]
    folder = cache_folder() / "jars" / name
    if not folder.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable("Maven (mvn) is not installed")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _fetch(maven, packages, Path(scratch), alone=alone)
            with suppress(OSError):  # another process was first
                (Path(scratch) / "jars").rename(folder)
    return sorted(folder.glob("*.jar"))


def _fetch(maven: str, packages: Sequence[str], scratch: Path, *, alone: bool) -> None:
    fields = ("groupId", "artifactId", "version")
    wanted = [dict(zip(fields, package.split(":"), strict=True)) for package in packages]
    inner = ["".join(f"<{name}>{value}</{name}>" for name, value in one.items()) for one in wanted]
    pom = scratch / "pom.xml"
    pom.write_text(_POM.format("".join(f"<dependency>{text}</dependency>" for text in inner)))
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={scratch}/jars"]
    command += ["-DexcludeTransitive=true"] if alone else ["-DincludeScope=runtime"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"Maven did not bring {', '.join(packages)} in {_LIMIT:.0f} s") from late
    if run.returncode:
        words = (run.stdout + run.stderr).strip().splitlines()
        raise Unavailable(f"Maven did not bring {', '.join(packages)}: {words[0] if words else run.returncode}")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


class Server:
    """A process in a group of its own, which a test may kill and start again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    def command(self) -> list[str]:
        """What runs the server."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start the server, or start it again, and wait until it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: self.ready() or self._process is None or self._process.poll() is not None)
        if self._process.poll() is not None:
            raise Unavailable(f"{type(self).__name__} ended at once: {self.last_words()}")
        return self

    def last_words(self) -> str:
        """The end of what it printed."""
        return (self.folder / "server.log").read_text(errors="replace")[-500:]

    def kill(self) -> None:
        """`kill -9`, of all its processes."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def wait_until(condition: Callable[[], object], patience: float = _PATIENCE) -> None:
    """Wait for a condition; `TimeoutError` if it does not come."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing came in {patience:.0f} s")
        time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    with socket.socket() as asking:
        return asking.connect_ex((HOST, port)) == 0


class Broker(Server):
    """A Kafka broker of one node, without ZooKeeper; topics are made as they are written to."""

    def __init__(self, folder: Path, partitions: int = 3) -> None:
        self._classes = ":".join(map(str, jars(BROKER, alone=False)))
        super().__init__(folder)
        self._java = str(find_java().home / "bin" / "java")
        self._port, voter = free_port(), free_port()
        self.servers = f"{HOST}:{self._port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{voter}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://{HOST}:{voter}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": folder / "data",
            "num.partitions": partitions,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        (folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        shutil.rmtree(folder / "data", ignore_errors=True)
        format_it = self._run("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c")
        subprocess.run(format_it, check=True, capture_output=True)

    def _run(self, main: str, *arguments: str) -> list[str]:
        fast = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return [self._java, *fast, "-cp", self._classes, main, *arguments, str(self.folder / "server.properties")]

    def command(self) -> list[str]:
        """What runs the server."""
        return self._run("kafka.Kafka")

    def ready(self) -> bool:
        """Whether it answers."""
        return listens(self._port)


class Postgres(Server):
    """A PostgreSQL server with one database and one user, both of name ``appulse``, who needs no password."""

    def __init__(self, folder: Path) -> None:
        self._programs = _postgres_programs()
        super().__init__(folder)
        self._port = free_port()
        self.url = f"jdbc:postgresql://{HOST}:{self._port}/postgres?user=appulse"
        self._as_user: list[str] = []
        self._place = Path(tempfile.mkdtemp(prefix="appulse-postgres-"))  # one that another user can come to
        atexit.register(shutil.rmtree, self._place, ignore_errors=True)
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(self._place, "nobody")
            self._as_user = ["setpriv", "--reuid=nobody", "--clear-groups", "--"]
        data = self._place / "data"
        made = [str(self._programs / "initdb"), "-D", str(data), "-U", "appulse", "-A", "trust", "--no-sync"]
        run = subprocess.run(
            [*self._as_user, *made],
            cwd=self._place,
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise Unavailable(f"initdb failed: {run.stderr.strip()[-300:]}")

    def command(self) -> list[str]:
        """What runs the server."""
        places = ["-D", str(self._place / "data"), "-k", str(self._place), "-h", HOST, "-p", str(self._port)]
        return [*self._as_user, str(self._programs / "postgres"), *places, "-c", "max_connections=30"]

    def ready(self) -> bool:
        """Whether it answers."""
        asked = [str(self._programs / "pg_isready"), "-h", HOST, "-p", str(self._port), "-q"]
        return subprocess.run(asked, check=False).returncode == 0

    def query(self, sql: str) -> list[list[str]]:
        """The rows of a query, as text."""
        asked = ["psql", "-h", HOST, "-p", str(self._port), "-U", "appulse", "-AtF", "\t", "-v", "ON_ERROR_STOP=1"]
        found = subprocess.run([*asked, "-c", sql, "postgres"], capture_output=True, text=True, check=True)
        return [line.split("\t") for line in found.stdout.splitlines()]


def _postgres_programs() -> Path:
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if all((place / name).exists() for name in ("postgres", "initdb", "pg_isready")):
            return place
    raise Unavailable("PostgreSQL is not installed")


class Cluster:
    """Spark standalone: a master and workers, each a process with a folder, a home and an environment of its own."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        port = free_port()
        self.master = f"spark://{HOST}:{port}"
        at = ["--host", HOST, "--port", str(port), "--webui-port", str(free_port())]
        self._master = SparkDaemon(folder / "master", "master.Master", at, port)
        self.workers = [self._worker(folder / f"worker{i}") for i in range(workers)]

    def _worker(self, folder: Path) -> SparkDaemon:
        port = free_port()
        at = ["--host", HOST, "--port", str(port), "--webui-port", str(free_port()), "--work-dir", str(folder / "work")]
        return SparkDaemon(folder, "worker.Worker", [*at, "--cores", "1", "--memory", "1g", self.master], port)

    def __enter__(self) -> Self:
        for server in (self._master, *self.workers):
            server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (*self.workers, self._master):
            server.kill()


class SparkDaemon(Server):
    """A master or a worker of Spark; it knows nothing of this checkout and this environment but Spark's own jars."""

    def __init__(self, folder: Path, main: str, arguments: list[str], port: int) -> None:
        super().__init__(folder)
        self._main, self._arguments, self._port = f"org.apache.spark.deploy.{main}", arguments, port

    def command(self) -> list[str]:
        """What runs the server."""
        import pyspark

        spark, java = Path(pyspark.__file__).parent, find_java().home
        interpreter = Path(sys.base_prefix) / "bin"
        variables = {
            "HOME": self.folder,
            "JAVA_HOME": java,
            "PATH": f"{interpreter}:/usr/bin:/bin",
            "SPARK_HOME": spark,
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_DIRS": self.folder / "local",
        }
        set_to = [f"{name}={value}" for name, value in variables.items()]
        run = [str(java / "bin" / "java"), "-Xmx256m", "-cp", f"{spark}/jars/*", self._main, *self._arguments]
        return ["env", "-i", *set_to, *run]

    def ready(self) -> bool:
        """Whether it answers."""
        return listens(self._port)


class ConnectServer(Server):
    """A server of Spark Connect with a Spark of two cores, and further settings of its session."""

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(folder)
        self._settings = settings or {}
        self._port = free_port()
        self.remote = f"sc://{HOST}:{self._port}"

    def command(self) -> list[str]:
        """What runs the server."""
        import pyspark

        settings = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": self._port,
            "spark.driver.bindAddress": HOST,
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.driver.host": HOST,
            "spark.pyspark.python": sys.executable,
            "spark.python.daemon.module": "appulse.engines.spark.daemon",
            "spark.python.authenticate.socketTimeout": "2m",  # of a machine that is busy
            "spark.sql.shuffle.partitions": 2,
            PROVIDER: ROCKSDB,
            "spark.ui.enabled": "false",
            **self._settings,
        }
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,4]"]
        submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        return ["env", f"JAVA_HOME={find_java().home}", f"SPARK_LOCAL_DIRS={self.folder}", submit, *main, *given]

    def ready(self) -> bool:
        """Whether it answers."""
        return listens(self._port)
