"""What a session and its first stateful query cost Java, with an archive of Spark's classes and without.

python -m benchmarks.class_archive [--json]
"""

from __future__ import annotations

import subprocess
import sys

import psutil

import appulse as ap
from appulse.engines.spark.gateway import Archives
from appulse.engines.spark.java import find_java
from appulse.engines.spark.probe import run_probe
from benchmarks.harness import arguments, report, say

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ROUNDS = 3
# An option of this name keeps `appulse.session` from giving its own, and this archive is not there.
_WITHOUT = "-XX:SharedArchiveFile=/nonexistent -Xlog:disable"


def seconds(option: str) -> float:
    """Processor seconds of the JVM of this process's session, after its first query."""
    spark = ap.session(2, **({_JAVA_OPTIONS: option} if option else {}))
    run_probe(spark)
    java = [process for process in psutil.Process().children(recursive=True) if process.name() == "java"]
    used = sum(time.user + time.system for time in (process.cpu_times() for process in java))
    spark.stop()
    return used


def measured() -> dict[str, float | None]:
    """The figures; null where `appulse warm` has archived nothing. Each session has a process of its own."""
    if not Archives.of(find_java()).option:
        say("There is no archive here: appulse warm")
        return {"java_without_of_with_archive": None, "java_seconds_with_archive": None}

    def least(option: str) -> float:
        program = [sys.executable, "-m", __name__.replace("__main__", "benchmarks.class_archive"), f"--only={option}"]
        runs = [subprocess.run(program, capture_output=True, text=True, check=True) for _ in range(_ROUNDS)]
        return min(float(run.stdout.split()[-1]) for run in runs)

    those = least("with"), least("without")
    say(f"with the archive {those[0]:.1f} s of processor time, without {those[1]:.1f} s")
    return {"java_without_of_with_archive": those[1] / those[0], "java_seconds_with_archive": those[0]}


def main() -> None:
    """Print the figures, or the seconds of one session."""
    args = arguments(__doc__ or "")
    if args.only:
        print(seconds("" if args.only == "with" else _WITHOUT))
    else:
        report(measured(), as_json=args.json)


if __name__ == "__main__":
    main()
