"""Machine code that is kept on disk: what processes compile apart has to work together."""

from __future__ import annotations

import subprocess
import sys

_NAME = """
import numba
from numba.core.caching import IndexDataCacheFile
import appulse.kernels.jit

@numba.njit
def twice(number):
    return 2 * number

twice(1)
print(next(iter(twice.overloads.values())).fndesc.mangled_name)
print(IndexDataCacheFile(".", "twice", 0)._data_name(1))
"""


def test_no_two_processes_name_machine_code_alike() -> None:
    """Numba's own numbers are those of the process: a cached np.sort would stand in for another's np.argsort.

    Nor its files: the code for one kind of arguments would stand in for that of another.
    """
    runs = [
        subprocess.run([sys.executable, "-c", _NAME], check=True, capture_output=True, text=True).stdout.split()
        for _ in range(2)
    ]
    for code, other in zip(*runs, strict=True):
        assert code != other
