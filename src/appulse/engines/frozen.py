"""All that a call in process holds, as bytes that the same version of appulse takes in again.

For operators whose state has no format of its own. The call itself is not saved: what is read goes into a call that was
made anew and means the same. Bytes name values and places for them, never code: objects of appulse come into being
without a call, and get their fields.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import Counter, deque
from enum import Enum
from importlib import import_module
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.errors import CheckpointError, StateError
from appulse.model.workers import Workers
from appulse.operators.output import Output
from appulse.operators.running_presence import LongWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.engines.bucket import Bucket

__all__ = ["freeze", "thaw"]

_OWN, _OPERATORS = "appulse.", "appulse.operators."
_PLAIN = (type(None), bool, int, float, str)
_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
_MAPPINGS: dict[str, Any] = {"dict": dict, "Counter": Counter}
_DAMAGED = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, zlib.error, pa.ArrowException)


def freeze(bucket: Bucket[Any]) -> list[bytes]:
    """The state of a bucket, and the version that can read it."""
    writer = _Writer(bucket)
    state = writer.value({name: value for name, value in vars(bucket).items() if name != "call"})
    nodes = json.dumps([state, writer.nodes]).encode()
    return [_version(), zlib.compress(nodes, 1), zlib.compress(b"".join(writer.blobs), 1)]


def thaw(bucket: Bucket[Any], blocks: Sequence[bytes]) -> None:
    """Take in what `freeze` gave, into a bucket of the same call; raises `CheckpointError` for another version."""
    version, *payload = blocks
    if version != _version():
        raise CheckpointError(
            f"The checkpoint was written by appulse {version.decode()}, and this operator goes on in the same version "
            f"alone; this is {_version().decode()}. Drain it with that version, and start with a new checkpoint."
        )
    try:
        nodes, blobs = map(zlib.decompress, payload)
        state, table = json.loads(nodes)
        held = _Reader(bucket, table, blobs).value(state)
        vars(bucket).update(held)
    except _DAMAGED as error:
        raise StateError(f"The state of the checkpoint cannot be read: {error}. Start with a new one.") from error


def _version() -> bytes:
    return str(import_module("appulse").version).encode()


def _shared(bucket: Bucket[Any]) -> dict[str, Any]:
    """What a call that is made anew has: it is named in the state, not part of it."""
    found: dict[str, Any] = {"workers": bucket.workers}
    lazy = getattr(bucket, "unfilled", None)
    for own, call in (("", bucket.call), ("lazy ", None if lazy is None else lazy.call)):
        if call is not None:
            found |= {f"{own}call": call, f"{own}plan": getattr(call, "plan", None)}
            for i, encoding in enumerate(call.encodings):
                found |= {f"{own}encoding {i}": encoding, f"{own}fill {i}": getattr(encoding, "fill", None)}
    return {name: value for name, value in found.items() if value is not None}


class _Writer:
    """Values as JSON: plain ones as they are, others by their place among ``nodes``; arrays lie in ``blobs``."""

    def __init__(self, bucket: Bucket[Any]) -> None:
        self.nodes: list[Any] = []
        self.blobs: list[bytes] = []
        self._size = 0
        self._names = {id(value): name for name, value in _shared(bucket).items()}
        self._places: dict[int, tuple[int, Any]] = {}  # values are kept, or their ids would be given to others

    def value(self, value: Any) -> Any:
        """A value, or where it is."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Workers):
            return {"known": "workers"}
        if (name := self._names.get(id(value))) is not None:
            return {"known": name}
        if id(value) not in self._places:
            self._places[id(value)] = place, _ = len(self.nodes), value
            self.nodes.append(None)
            self.nodes[place] = self._node(value)
        return [self._places[id(value)][0]]

    def _node(self, value: Any) -> Any:
        kind = type(value)
        if _SEQUENCES.get(kind.__name__) is kind:
            return [kind.__name__, [self.value(one) for one in value]]
        if _MAPPINGS.get(kind.__name__) is kind:
            return [kind.__name__, [[self.value(key), self.value(one)] for key, one in value.items()]]
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject and value.dtype.names is None:
            return self._array(value)
        if isinstance(value, bytes):
            return ["bytes", self._blob(value)]
        if isinstance(value, np.dtype):
            return ["dtype", value.str]
        if isinstance(value, pa.Schema | pa.Field | pa.DataType | pa.Table):
            return self._arrow(value)
        return self._object(value)

    def _arrow(self, value: Any) -> Any:
        if isinstance(value, pa.Table):
            return ["table", self._blob(_table_bytes(value))]
        if isinstance(value, pa.Schema):
            return ["schema", self._blob(value.serialize().to_pybytes())]
        kind, field = ("field", value) if isinstance(value, pa.Field) else ("type", pa.field("", value))
        return [kind, self._blob(pa.schema([field]).serialize().to_pybytes())]

    def _array(self, value: Any) -> Any:
        turned = value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous
        order: Any = "F" if turned else "C"
        kind = "scalar" if isinstance(value, np.generic) else "array" if value.flags.writeable else "fixed"
        return [kind, value.dtype.str, value.shape, order, self._blob(value.tobytes(order))]

    def _object(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, MethodType):
            return ["method", self.value(value.__self__), value.__name__]
        if isinstance(value, FunctionType) and value.__module__.startswith(_OPERATORS) and _is_named(value):
            return ["function", value.__module__, value.__qualname__]
        if not kind.__module__.startswith(_OWN) or not _is_named(kind):
            raise StateError(f"{kind.__module__}.{kind.__qualname__} has no place in a checkpoint. Run without one.")
        name = [kind.__module__, kind.__qualname__]
        if isinstance(value, Output):  # has a lock
            return ["output", value.most, value.made, value.expected]
        if isinstance(value, Enum):
            return ["enum", *name, value.name]
        if isinstance(value, tuple):
            return ["named", *name, [self.value(one) for one in value]]
        if isinstance(value, LongWindows):  # found anew
            value = LongWindows()
        slots = {own for base in kind.__mro__ for own in getattr(base, "__slots__", ()) if hasattr(value, own)}
        fields = {own: getattr(value, own) for own in sorted(slots)} | getattr(value, "__dict__", {})
        return ["object", *name, {own: self.value(one) for own, one in fields.items()}]

    def _blob(self, data: bytes) -> list[int]:
        self.blobs.append(data)
        self._size += len(data)
        return [self._size - len(data), self._size]


class _Reader:
    """Makes the values of a `_Writer`, each once."""

    def __init__(self, bucket: Bucket[Any], nodes: list[Any], blobs: bytes) -> None:
        self._shared, self._nodes, self._blobs = _shared(bucket), nodes, blobs
        self._made: dict[int, Any] = {}

    def value(self, value: Any) -> Any:
        """The value, or what is at its place."""
        if isinstance(value, dict):
            return self._shared[value["known"]]
        if not isinstance(value, list):
            return value
        (place,) = value
        if place not in self._made:
            self._make(place)
        return self._made[place]

    def _make(self, place: int) -> None:
        """Make a value; one that may hold itself is known before what it holds."""
        kind, *rest = self._nodes[place]
        if kind in ("tuple", "frozenset"):
            self._made[place] = _SEQUENCES[kind](map(self.value, rest[0]))
        elif kind in _SEQUENCES:
            made = self._made[place] = _SEQUENCES[kind]()
            (made.update if kind == "set" else made.extend)(map(self.value, rest[0]))
        elif kind in _MAPPINGS:
            made = self._made[place] = _MAPPINGS[kind]()
            for key, one in rest[0]:
                made[self.value(key)] = self.value(one)
        elif kind == "object":
            made = self._made[place] = object.__new__(_class(*rest[:2]))
            for name, one in rest[2].items():
                object.__setattr__(made, name, self.value(one))
        else:
            self._made[place] = getattr(self, f"_read_{kind}")(*rest)

    def _read_array(self, dtype: str, shape: list[int], order: Any, where: list[int]) -> Any:
        return np.frombuffer(bytearray(self._read_bytes(where)), dtype).reshape(shape, order=order)

    def _read_fixed(self, dtype: str, shape: list[int], order: Any, where: list[int]) -> Any:
        return np.frombuffer(self._read_bytes(where), dtype).reshape(shape, order=order)

    def _read_scalar(self, dtype: str, shape: list[int], order: Any, where: list[int]) -> Any:
        return self._read_fixed(dtype, shape, order, where)[()]

    def _read_bytes(self, where: list[int]) -> bytes:
        return self._blobs[slice(*where)]

    def _read_dtype(self, name: str) -> Any:
        return np.dtype(name)

    def _read_schema(self, where: list[int]) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self._read_bytes(where)))

    def _read_field(self, where: list[int]) -> pa.Field:
        return self._read_schema(where).field(0)

    def _read_type(self, where: list[int]) -> pa.DataType:
        return self._read_field(where).type

    def _read_table(self, where: list[int]) -> pa.Table:
        return pa.ipc.open_stream(pa.py_buffer(self._read_bytes(where))).read_all()

    def _read_method(self, owner: Any, name: str) -> Any:
        value = self.value(owner)
        return MethodType(_known(getattr(type(value), name), FunctionType, name), value)

    def _read_function(self, module: str, name: str) -> Any:
        """One of an operator: no state holds others."""
        if not module.startswith(_OPERATORS):
            raise ValueError(f"{module}.{name} is not part of a state")
        return _known(vars(sys.modules[module])[name], FunctionType, name)

    def _read_output(self, most: int | None, made: float, expected: float | None) -> Output:
        return Output(most, made, expected)

    def _read_enum(self, module: str, kind: str, name: str) -> Any:
        return _class(module, kind)[name]

    def _read_named(self, module: str, kind: str, values: list[Any]) -> Any:
        return tuple.__new__(_class(module, kind), map(self.value, values))


def _is_named(value: FunctionType | type) -> bool:
    """Whether it is found by its name in its module."""
    return "." not in value.__qualname__


def _class(module: str, name: str) -> Any:
    """A class of appulse that has been imported."""
    if not module.startswith(_OWN) or "." in name:
        raise ValueError(f"{module}.{name} is not part of a state")
    return _known(vars(sys.modules[module])[name], type, name)


def _known(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind) or not value.__module__.startswith(_OWN):
        raise TypeError(f"{name} is not part of a state")
    return value


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
