"""The parent of Python workers: it ends with its application, and loads kernels while it waits, for workers to come."""

from __future__ import annotations

import subprocess
import sys

import psutil

from benchmarks.servers import wait_until

CHILD = """
import time
from appulse.engines.spark.daemon import ending_with_parent
with ending_with_parent():
    print("ready", flush=True)
    time.sleep(120)
"""
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


LATER = """
import os, time
import appulse.engines.warm as warm
from appulse.engines.spark import daemon
loaded = []
warm.is_compiled = lambda: True
warm.in_parts = lambda: (loaded.append(part) for part in "abc")
daemon._BETWEEN = 0.01
daemon.load_later(0.2)
child = os.fork()
end = time.monotonic() + (1.0 if child == 0 else 60.0)
while len(loaded) < 3 and time.monotonic() < end:
    time.sleep(0.05)
if child == 0:
    os._exit(len(loaded))
print(*loaded, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_it_loads_kernels_later_and_workers_that_are_there_do_not() -> None:
    ran = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["a", "b", "c", "0"]


def test_it_does_not_outlive_its_application() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
