"""Arrays in one file that is mapped into memory: what a repository and its indexes are kept in.

A file is ``APPULSE1``, the length of the header (8 bytes, little-endian), a digest of the header (16 bytes), the header
in JSON, and the arrays, each on a 64-byte boundary. The header says of each array its type, shape, place and checksum.
Nothing in a file is ever executed.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4
from zlib import crc32

import numpy as np

from appulse.errors import StateError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_MAGIC = b"APPULSE1"
_PREFIX = len(_MAGIC) + 8 + 16
_ALIGNED = 64
_TYPES = ("<f8", "<i8")


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a new file; it is there whole, or not at all. Raises `FileExistsError` where there is one."""
    listed, place = {}, 0
    for name, array in arrays.items():
        whole = np.ascontiguousarray(array)
        kind = whole.dtype.newbyteorder("<").str
        listed[name] = {"type": kind, "shape": whole.shape, "place": place, "crc": crc32(_bytes(whole))}
        place += -(-whole.nbytes // _ALIGNED) * _ALIGNED
    text = json.dumps({**header, "arrays": listed}).encode()
    with published(path) as file:
        file.write(_MAGIC + len(text).to_bytes(8, "little") + blake2b(text, digest_size=16).digest() + text)
        for array in arrays.values():
            file.write(bytes(-file.tell() % _ALIGNED))
            file.write(_bytes(np.ascontiguousarray(array)))
        file.write(bytes(-file.tell() % _ALIGNED))


@contextmanager
def published(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which is there under its name once all of it is.

    Raises `FileExistsError` where there is one, `StorageError` where there cannot be.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error}. Give a folder with room, and the right to write."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path, *, check: bool) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header, and the arrays as maps of the file: pages are read when they are looked at, and shared.

    Writing to an array changes this process's copy alone. The header is always checked, the arrays where asked for.
    Raises `StateError` for what is no such file, or was damaged.
    """
    with path.open("rb") as file:
        prefix = file.read(_PREFIX)
        length = int.from_bytes(prefix[8:16], "little")
        text = file.read(length) if prefix[:8] == _MAGIC and length < 1 << 32 else b""
        if blake2b(text, digest_size=16).digest() != prefix[16:]:
            raise _damaged(path, "its header is not what was written")
        # Private pages, so that arrays are writable: kernels are compiled for such.
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header = json.loads(text)
    begin = -(-(_PREFIX + length) // _ALIGNED) * _ALIGNED
    arrays = {}
    for name, entry in header.pop("arrays").items():
        count, kind = math.prod(entry["shape"]), entry["type"]
        if kind not in _TYPES or begin + entry["place"] + count * np.dtype(kind).itemsize > len(pages):
            raise _damaged(path, f"its array {name!r} is cut short, or of a strange type")
        array = np.frombuffer(pages, kind, count, begin + entry["place"]).reshape(entry["shape"])
        if check and crc32(_bytes(array)) != entry["crc"]:
            raise _damaged(path, f"its array {name!r} is not what was written")
        arrays[name] = array
    return header, arrays


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _damaged(path: Path, what: str) -> StateError:
    return StateError(
        f"{path} is not a saved repository that can be used: {what}. Save it again, or take another version."
    )
