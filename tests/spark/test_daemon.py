"""The parent of Python workers: it ends with its application, also while it is still at its start."""

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


def test_it_does_not_outlive_its_application() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
