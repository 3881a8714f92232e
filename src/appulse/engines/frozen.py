"""All that a call in process holds, as bytes that the same version of appulse takes in again.

For operators whose state has no format of its own. The call itself is not saved: what is read goes into a call that was
made anew and means the same. Only classes of appulse, numpy and pyarrow are made, since a checkpoint may be damaged.
"""

from __future__ import annotations

import io
import pickle
import zlib
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any

from appulse.errors import CheckpointError, StateError
from appulse.operators.output import Output
from appulse.operators.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.engines.bucket import Bucket

__all__ = ["freeze", "thaw"]

_PACKAGES = frozenset({"appulse", "numpy", "pyarrow"})
_BUILT_IN = frozenset({"set", "frozenset", "slice", "range", "complex", "bytearray"})
_OTHERS = frozenset(
    {
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("collections", "deque"),
        ("functools", "partial"),
    }
)


def freeze(bucket: Bucket[Any]) -> list[bytes]:
    """The state of a bucket, and the version that can read it."""
    sink = io.BytesIO()
    _Freezer(sink, bucket).dump({name: value for name, value in vars(bucket).items() if name != "call"})
    return [_version(), zlib.compress(sink.getvalue(), 1)]  # scratch arrays are mostly zeros


def thaw(bucket: Bucket[Any], blocks: Sequence[bytes]) -> None:
    """Take in what `freeze` gave, into a bucket of the same call; raises `CheckpointError` for another version."""
    version, payload = blocks
    if version != _version():
        raise CheckpointError(
            f"The checkpoint was written by appulse {version.decode()}, and this operator goes on in the same version "
            f"alone; this is {_version().decode()}. Drain it with that version, and start with a new checkpoint."
        )
    try:
        state = _Thawer(io.BytesIO(zlib.decompress(payload)), bucket).load()
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, zlib.error) as error:
        raise StateError(f"The state of the checkpoint cannot be read: {error}. Start with a new one.") from error
    vars(bucket).update(state)


def _version() -> bytes:
    return str(import_module("appulse").version).encode()


def _shared(bucket: Bucket[Any]) -> dict[str, Any]:
    """What a call that is made anew has: it is named in the state, not part of it."""
    call = bucket.call
    found = {"call": call, "plan": getattr(call, "plan", None)}
    for i, encoding in enumerate(call.encodings):
        found |= {f"encoding {i}": encoding, f"fill {i}": getattr(encoding, "fill", None)}
    return {name: value for name, value in found.items() if value is not None}


def _method(owner: Any, name: str) -> Any:
    return getattr(owner, name)


class _Freezer(pickle.Pickler):
    def __init__(self, sink: io.BytesIO, bucket: Bucket[Any]) -> None:
        super().__init__(sink, protocol=5)
        self._names = {id(value): name for name, value in _shared(bucket).items()}

    def persistent_id(self, obj: Any) -> Any:
        """The name of what a call has."""
        if isinstance(obj, Workers):
            return "workers"
        return self._names.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        """An output has a lock, which is made anew; a method is looked up by its name."""
        if isinstance(obj, Output):
            return Output, (obj.most, obj.made, obj.expected)
        return (_method, (obj.__self__, obj.__name__)) if isinstance(obj, MethodType) else NotImplemented


class _Thawer(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, bucket: Bucket[Any]) -> None:
        super().__init__(source)
        self._known = {**_shared(bucket), "workers": bucket.workers}

    def persistent_load(self, pid: Any) -> Any:
        """What the call has by that name."""
        return self._known[pid]

    def find_class(self, module: str, name: str) -> Any:
        """A class that a state may have."""
        known = module.partition(".")[0] in _PACKAGES or (module, name) in _OTHERS
        if not known and not (module == "builtins" and name in _BUILT_IN):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a state")
        return super().find_class(module, name)
