"""The one decorator that owns every compiler flag."""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import caching, types
from numba.core.bytecode import FunctionIdentity

# Numba names machine code by function, types, and a number counted in each process. Functions made by functions, as all
# of its sorts are, share the first two: code that two processes compiled, and kept on disk, may have one name, and who
# loads both calls one for the other, np.sort in place of np.argsort. Counted from anywhere, no two are named alike.
FunctionIdentity._unique_ids = itertools.count(secrets.randbits(48))  # noqa: SLF001 - there is no other way in

# It also numbers the files of a function's machine code, from 1 in each process that finds none. Two that compile it at
# once for different types would write one file, and its index could name it for the wrong ones.
_FIRST = secrets.randbits(48)
_types: Any = types  # which has no types itself
_files: Any = caching.IndexDataCacheFile
_files._data_name = lambda self, number: self._data_name_pattern.format(number=_FIRST + number)  # noqa: SLF001

_load_index: Any = _files._load_index  # noqa: SLF001


def _known_index(self: Any) -> Any:
    """The index of a function's machine code; none, where it names types that this version has no more.

    Numba reads all of it before it sees that the source is another one, and NamedTuples stand in it by their modules.
    """
    try:
        return _load_index(self)
    except (ImportError, AttributeError):
        return {}


_files._load_index = _known_index  # noqa: SLF001

F = TypeVar("F", bound=Callable[..., Any])

_HERE, _PACKAGE = Path(__file__).parent, __name__.rpartition(".")[0] + "."
_IMPORTS = re.compile(rb"^from ([\w.]+)\.(\w+) import", re.MULTILINE)

# Sums may be reordered, so that reductions use SIMD. NaN and infinity keep their meaning: "nnan" and "ninf"
# would let the compiler drop a sigma of zero. The tolerance of every comparison (1e-9) is far above the rounding
# that reordering and fused multiply-add move.
_REORDER = {"reassoc", "contract", "nsz"}


def _compiled(function: F, *, fastmath: Any = False, forceinline: bool = False) -> F:
    """State every option: one that is left out Numba takes from the kernel that first calls this one.

    No kernel is called by its address from C: a wrapper for that would be compiled, kept and loaded for nothing.
    Private ones of this package are called by kernels alone, and have no way in from Python either: to unpack a group
    of arrays may take more code than what is done with them.
    """
    private = function.__name__.startswith("_") and function.__module__.startswith(_PACKAGE)
    options: dict[str, Any] = {"fastmath": fastmath, "forceinline": forceinline, "no_cfunc_wrapper": True}
    options["no_cpython_wrapper"] = private
    made: Any = njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    # A kernel's machine code has that of the kernels it calls in it. Numba looks at the file of the kernel alone, and
    # would go on with what others were before an upgrade.
    kept: Any = getattr(made._cache, "_cache_file", None)  # noqa: SLF001 - there is none where nothing can be kept
    if kept is not None:
        kept._source_stamp = (kept._source_stamp, _sources(function.__code__.co_filename))  # noqa: SLF001
    if private:
        made.add_overload = partial(_add_inner, made)
        made._compile_for_args = partial(_refuse, function.__name__)  # noqa: SLF001 - what a call from Python comes to
    # Numba compiles anew for arguments that differ in nothing a kernel sees: arrays in Arrow's memory, which may not be
    # written, beside those that NumPy made, and numbers that stand in a caller's source.
    made.typeof_pyval = partial(_type_of, made.typeof_pyval)
    made.get_call_template = partial(_call, made.get_call_template)
    return cast("F", made)


@cache
def _sources(file: str) -> str:
    """A digest of a file and of all that it imports from its own package, or from this one."""
    known, waiting = dict[Path, bytes](), [Path(file)]
    while waiting:
        at = waiting.pop()
        if at not in known:
            known[at], imported = _read(at)
            waiting.extend(imported)
    found = hashlib.blake2b(digest_size=16)
    for one in sorted(known, key=lambda path: path.name):
        found.update(known[one])
    return found.hexdigest()


@cache
def _read(file: Path) -> tuple[bytes, list[Path]]:
    """A digest of a file, and the files of what it imports; types are imported by lines that are not looked at."""
    try:
        text = file.read_bytes()
    except OSError:  # what it is not a file of, such as a cell of a notebook
        return b"", []
    places = {_PACKAGE[:-1]: _HERE}
    imported = []
    for package, name in _IMPORTS.findall(text):
        own = file.parent if package.decode().rpartition(".")[2] == file.parent.name else None
        folder = places.get(package.decode(), own)
        if folder is not None:
            imported.append(folder / f"{name.decode()}.py")
    return hashlib.blake2b(text, digest_size=16).digest(), imported


def _add_inner(made: Any, compiled: Any) -> None:
    """Have machine code for kernels to find, and not for Python, whose call would lead nowhere."""
    made.overloads[tuple(compiled.signature.args)] = compiled


def _refuse(name: str, *_args: object, **_named: object) -> None:
    raise TypeError(f"{name} is a kernel for other kernels: it cannot be called from Python.")


def _type_of(known: Callable[[object], Any], value: object) -> Any:
    return _may_be_written(known(value))


def _call(known: Callable[..., Any], args: Iterable[Any], names: dict[str, Any]) -> Any:
    of_any_value = _types.unliteral
    return known(tuple(map(of_any_value, args)), {name: of_any_value(found) for name, found in names.items()})


def _may_be_written(found: Any) -> Any:
    """A type as if no array of it were read-only: no kernel writes to what it is given to read."""
    if isinstance(found, types.Array):
        return found.copy(readonly=False)
    if isinstance(found, types.BaseTuple):
        parts: Any = found
        written = [_may_be_written(part) for part in parts]
        return _types.BaseTuple.from_types(written, getattr(found, "instance_class", None))
    return found


def kernel(function: F) -> F:
    """Compile ``function`` on first use, without Python objects, and keep the machine code on disk."""
    return _compiled(function, fastmath=_REORDER)


def exact_kernel(function: F) -> F:
    """As `kernel`, with every operation rounded as written: for numbers that two processes must agree on to the bit."""
    return _compiled(function)


def template(function: F) -> F:
    """A kernel that takes a kernel: it is written out in each of its callers, and compiled with them."""
    return cast("F", njit(inline="always", error_model="numpy")(function))


def inlined_kernel(function: F) -> F:
    """As `exact_kernel`, put into its callers: a call that takes ten arrays may cost as much as what is done."""
    return _compiled(function, forceinline=True)


def fused_kernel(function: F) -> F:
    """As `kernel`, put into its callers: Numba counts the arrays of a call, which may cost more than what it does."""
    return _compiled(function, fastmath=_REORDER, forceinline=True)
