"""Machine code that is kept on disk: what processes compile apart has to work together."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numba import njit, types
from numba.core.dispatcher import Dispatcher

from appulse import kernels
from appulse.kernels import capsule, jit
from appulse.kernels.jit import kernel

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


_USE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import kernels
from {module} import Pair
print(kernels.first(Pair(np.arange(3), np.arange(3))))
"""


def test_machine_code_for_a_type_that_has_gone_is_made_anew(tmp_path: Path) -> None:
    """Numba reads the types in an index before it sees that the source changed: one has moved to another module."""
    pair = "from typing import Any, NamedTuple\n\nclass Pair(NamedTuple):\n    one: Any\n    two: Any\n"
    code = "from appulse.kernels.jit import kernel\n\n@kernel\ndef first(pair):\n    return pair.one[{}]\n"
    for module, place in (("earlier", 1), ("later", 2)):
        (tmp_path / "earlier.py").unlink(missing_ok=True)
        (tmp_path / f"{module}.py").write_text(pair)
        (tmp_path / "kernels.py").write_text(code.format(place) + "\n" * place)
        command = [sys.executable, "-B", "-c", _USE.format(module=module), str(tmp_path)]
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        assert int(found) == place


_ROUNDED = """
from appulse.kernels.jit import exact_kernel, kernel

@exact_kernel
def exact(x, y, z):
    return x * y + z

@kernel
def fast(x, y, z):
    return exact(x, y, z) + 1.0
"""
_FIRST = "import sys; sys.path.insert(0, sys.argv[1]); import rounded; rounded.{}(1.0, 1.0, 1.0)"
_THEN = "import sys; sys.path.insert(0, sys.argv[1]); import rounded; print(rounded.exact(1e8 + 1, 1e8 + 1, -1e16))"


@pytest.mark.parametrize("first", ["exact", "fast"])
def test_an_exact_kernel_is_rounded_as_written_whoever_needs_it_first(tmp_path: Path, first: str) -> None:
    """Numba would compile it as the kernel that calls it: with one rounding of both operations in place of two."""
    (tmp_path / "rounded.py").write_text(_ROUNDED)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for code in (_FIRST.format(first), _THEN):
        command = [sys.executable, "-c", code, str(tmp_path)]
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert float(found) == 2e8


class Pair(NamedTuple):
    """What kernels are given, with an array in it."""

    values: np.ndarray
    at: int


@kernel
def at(values: np.ndarray, at: int) -> float:
    return float(values[at])


@kernel
def first_and_last(pair: Pair) -> float:
    return at(pair.values, 0) + at(pair.values, -1) + at(pair.values, pair.at)


def test_a_kernel_is_compiled_once_for_values_that_it_cannot_tell_apart() -> None:
    """Numba has types of their own for Arrow's memory, which may not be written, and for numbers in the source."""
    ours = np.arange(4.0)
    arrows = pa.array(ours).to_numpy(zero_copy_only=True)
    assert not arrows.flags.writeable
    for values in (arrows, ours, arrows):
        assert first_and_last(Pair(values, 2)) == 5.0
        assert at(values, 3) == 3.0
    compiled: list[Any] = [at, first_and_last]
    assert [len(found.signatures) for found in compiled] == [1, 1]
    numbas = njit(lambda values: values[0])
    assert (numbas(arrows), numbas(ours), len(numbas.signatures)) == (0.0, 0.0, 2)


def test_a_private_kernel_is_for_kernels_alone() -> None:
    """It has no way in from Python: a call is refused, also once it is compiled for others."""
    inner: Any = capsule._bessel
    inner.compile((types.float64,))
    with pytest.raises(TypeError, match="_bessel is a kernel for other kernels"):
        inner(1.0)
    outer: Any = njit(lambda x: 2.0 * inner(x))
    assert np.isfinite(outer(1.0))


def test_functions_of_python_call_no_private_kernel() -> None:
    """Those of the modules of kernels; elsewhere nobody knows them."""
    for found in iter_modules(kernels.__path__):
        known = vars(import_module(f"{kernels.__name__}.{found.name}"))
        private = {name for name, one in known.items() if name.startswith("_") and isinstance(one, Dispatcher)}
        others = [inspect.unwrap(one) for one in known.values() if not isinstance(one, Dispatcher)]
        plain = [one for one in others if isinstance(one, FunctionType)]
        assert not [one.__name__ for one in plain if private.intersection(one.__code__.co_names)]


_CALLED = "from appulse.kernels.jit import kernel\n\n@kernel\ndef called(x):\n    return x + {}\n"
_CALLER = "from appulse.kernels.jit import kernel\nfrom own.{0} import {0}\n\n@kernel\ndef {1}(x):\n    return {0}(x)\n"
_CALL = "import sys; sys.path.insert(0, sys.argv[1]); from own.caller import caller; print(caller(1))"


def test_machine_code_of_callers_is_made_anew_where_a_kernel_changed(tmp_path: Path) -> None:
    """In another file: an upgrade may change the kernel that is called, and leave the file of its callers as it was."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "between.py").write_text(_CALLER.format("called", "between"))
    (own / "caller.py").write_text(_CALLER.format("between", "caller"))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for more in (1, 2, 2):
        (own / "called.py").write_text(_CALLED.format(more))
        command = [sys.executable, "-B", "-c", _CALL, str(tmp_path)]
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        assert int(found) == 1 + more
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.nbc")}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert kept == {file.name: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.nbc")}


def test_what_kernels_import_is_seen() -> None:
    """All of it is in the digest of a kernel's sources, so it has to be imported by lines that this looks at."""
    package = Path(jit.__file__).parent
    for file in package.glob("*.py"):
        tree = ast.parse(file.read_text())
        named = [node for node in tree.body if isinstance(node, ast.ImportFrom | ast.Import)]
        modules = {node.module for node in named if isinstance(node, ast.ImportFrom)}
        plain = {alias.name for node in named if isinstance(node, ast.Import) for alias in node.names}
        assert "appulse.kernels" not in modules
        assert not any(name.startswith("appulse") for name in plain)
        own = {name.rpartition(".")[2] for name in modules if name and name.startswith("appulse.kernels.")}
        assert {path.stem for path in jit._read(file)[1]} == own
