"""Kernels that `fast_compiling` compiled are those that Numba compiles, and other processes find them."""

from __future__ import annotations

import os
import subprocess
import sys
from math import sqrt
from typing import TYPE_CHECKING, Any

from numba.core import compiler

from appulse.engines.fast_compiling import same_options, variables
from appulse.kernels.fences import watch
from appulse.kernels.neighbours import fill
from appulse.kernels.regressions import ridge

if TYPE_CHECKING:
    from pathlib import Path

INNER = """
import numpy as np
from numba import njit
from appulse.kernels.jit import exact_kernel

@exact_kernel
def roots(values):
    total = 0.0
    for value in np.sort(values):
        total += np.sqrt(value)
    return total

@njit(cache=True, no_cpython_wrapper=True)
def _scaled(values, by):
    return roots(values) * by

@exact_kernel
def doubled(values):
    return _scaled(values, 2.0)
"""
OTHER = """
from appulse.kernels.jit import exact_kernel
from inner import _scaled

@exact_kernel
def tripled(values):
    return _scaled(values, 3.0)
"""
FIRST = """
import numpy as np
from appulse.engines.fast_compiling import compile_faster

compile_faster()
import inner
print(inner.doubled(np.arange(10.0)))
"""
SECOND = """
import numpy as np
import inner, other

print(inner.doubled(np.arange(10.0)), other.tripled(np.arange(10.0)), inner.roots(np.arange(10.0)))
loaded = [sum(kernel.stats.cache_hits.values()) for kernel in (inner.doubled, inner._scaled, inner.roots)]
print(loaded, sum(other.tripled.stats.cache_misses.values()))
"""


def run(program: str, folder: Path) -> list[str]:
    path = os.pathsep.join([str(folder), *sys.path])
    settings = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "kept")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=settings)
    return done.stdout.splitlines()


def test_other_processes_load_what_was_compiled_and_take_it_in(tmp_path: Path) -> None:
    """Also what compiled functions alone call, which has no machine code of its own."""
    (tmp_path / "inner.py").write_text(INNER)
    (tmp_path / "other.py").write_text(OTHER)
    total = sum(map(sqrt, range(10)))
    assert run(FIRST, tmp_path) == [f"{2 * total}"]
    assert run(SECOND, tmp_path) == [f"{2 * total} {3 * total} {total}", "[1, 1, 1] 1"]


def test_what_compiles_faster_finds_what_numba_finds() -> None:
    """Options that are the same, and the variables of each statement in their order."""
    flags: Any = compiler.Flags
    options = [flags() for _ in range(4)]
    options[1].nrt, options[2].nrt, options[3].no_cfunc_wrapper = True, False, True
    assert [[same_options(one, other) for one in options] for other in options] == [
        [one == other for one in options] for other in options
    ]
    assert same_options(options[0], options[2])  # which says what the other leaves out
    frontend: Any = compiler.run_frontend
    kernels: tuple[Any, ...] = (fill, watch, ridge)
    found = 0
    for kernel in kernels:
        of_kernel = frontend(kernel.py_func)
        for block in of_kernel.blocks.values():
            for statement in block.body:
                expected = statement._rec_list_vars(vars(statement))
                assert list(map(id, variables(statement, vars(statement)))) == list(map(id, expected))
                found += len(expected)
    assert found > 1000
