"""What calls by hand share: streams by name, pushes that are held until columns have types, one push at a time."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from html import escape
from inspect import signature
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Generic, NoReturn, Protocol, Self, TypeAlias, TypeVar

import pyarrow as pa

from appulse.arguments import Kind, Unfit, shown
from appulse.engines.filling import beforehand_fields, local_stage
from appulse.engines.given import as_given
from appulse.engines.local import as_table
from appulse.engines.options import CallSettings
from appulse.engines.pushes import FirstTypes, schema_of
from appulse.engines.surviving import SIGN, Survivors, survivor
from appulse.engines.thresholds import warn_swapped_dimensions
from appulse.errors import AppulseError, BadArgument, ImpossibleBursts, OutputLimit
from appulse.model.stream import Stream, stream_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from appulse.engines.explain import Explanation
    from appulse.engines.filling import Around

    Types: TypeAlias = Mapping[str, FirstTypes]
    #: Frames of one push, by stream name.
    Frames: TypeAlias = dict[str, pa.Table]

Engine = TypeVar("Engine")


class _Changeable(Protocol):
    def change(self, table: pa.Table, /) -> object: ...


ChangingEngine = TypeVar("ChangingEngine", bound=_Changeable)

_LONG = 80  # letters of an argument at a prompt


def _bare(stream: Any) -> Stream:
    if not isinstance(stream, Stream):
        raise Unfit
    if stream.frame is not None:
        raise Unfit("the stream has a frame. Leave it out, ap.Stream(None, ...), and give the rows to push().")
    return stream


#: A stream whose rows are pushed.
Bare: TypeAlias = Annotated[Stream, Kind("a Stream. Describe the stream: ap.Stream(None, ...)", _bare)]


class ByHand(Generic[Engine]):
    """A call without Spark, push by push.

    The types of keys, times and partitions are those of the first push that has some. Until every stream has them
    pushes are held, and the engine takes in all of them once it can be made.
    """

    _keeps_rows = True
    _pairs = False  # whether rows of several streams are compared
    _withdraws_before = False  # whether rows are withdrawn before the engine has them
    _fills: Mapping[str, Around] = {}  # what fills streams by the rows around, before the engine has them
    _signed = False  # whether the engine then has all rows, with a column that says which are withdrawn
    _settings: dict[str, Any]
    #: Makes the engine for streams with these columns.
    _engine_of: Callable[[Sequence[Stream], Sequence[pa.Schema], Mapping[str, Any]], Engine]

    def __init__(self, streams: Sequence[Stream], alone: str) -> None:
        """``alone`` is the name of a single stream that has none."""
        if not streams:
            kind = type(self).__name__
            raise BadArgument(f"{kind}() has no streams. Describe some: ap.{kind}(ap.Stream(None, ...), ...).")
        refuse_twice(streams)
        names = stream_names(streams) if len(streams) > 1 else (streams[0].name or alone,)
        named = (replace(stream, name=name) for stream, name in zip(streams, names, strict=True))
        self._streams = dict(zip(names, named, strict=True))
        if self._pairs:
            warn_swapped_dimensions(list(self._streams.values()))
        self._types: Types = {name: FirstTypes(f"stream {name!r}", self._fixed(name)) for name in names}
        self._held: list[Frames] = []
        self._engine: Engine | None = None
        self._survivors = Survivors({})
        self._drained = False
        self._plain: dict[str, pa.Schema] = {}  # columns of the latest push that needed no change
        self._turn = Turn(keeps_rows=self._keeps_rows)

    def __repr__(self) -> str:
        given = (f"{name}={value}" for name, value in self._said().items())
        return f"{type(self).__name__}({', '.join([*map(repr, self._streams.values()), *given])})"

    def _repr_html_(self) -> str:
        said = {f"stream {name!r}": stream for name, stream in self._streams.items()} | self._said()
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in said.items())
        return f"<table><caption>{type(self).__name__}, rows are pushed</caption>{rows}</table>"

    def _said(self) -> dict[str, str]:
        """The arguments beside the streams that are not at their default."""
        usual = {name: repr(one.default) for name, one in signature(type(self)).parameters.items() if name != "options"}
        given = {name: (repr(value), value) for name, value in self._settings.items() if name in usual}
        return {
            name: text if len(text) < _LONG else shown(value)
            for name, (text, value) in given.items()
            if text != usual[name]
        }

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The streams by name, as they were described."""
        return self._streams

    def push(self, *frame: Any, **frames: Any) -> pa.Table:
        """Push rows, as ``push(name=frame, ...)``, or as ``push(frame)`` of a single stream, and return their answers.

        Raises `BadArgument` where keys, times or partitions have other types than in the first push. A push that raises
        changes nothing.
        """
        tables = self._tables(frame, frames)
        with self._turn:
            if self._drained:
                raise BadArgument(f"The streams were drained: they have ended. Make a new {type(self).__name__}.")
            known = self._types
            types = {
                name: one.and_those_of(tables[name].schema) if name in tables else one for name, one in known.items()
            }
            if self._engine is not None:
                before = copy(self._survivors) if self._settings["on_reject"] == "fail" else self._survivors
                try:
                    answers = self._feed(self._engine, self._survivors.push(fitted(tables, types)))
                except AppulseError:
                    self._survivors = before
                    raise
                self._types = types
                return answers
            held = [*self._held, tables] if tables else self._held
            if self._may_start(held, types, ended=False):
                return self._start(held, types)
            answers = self._checked(held, types) if held else pa.table({})
            self._held, self._types = held, types
            return answers

    def drain(self) -> pa.Table:
        """End the streams; return the answers that were waiting for later rows."""
        with self._turn:
            parts = []
            if self._engine is None and self._may_start(self._held, self._types, ended=True):
                parts.append(self._start(self._held, self._types))
            self._drained = True
            if self._engine is not None:
                waited = self._survivors.drain()
                parts += [self._feed(self._engine, waited)] if waited else []
                return pa.concat_tables([*parts, self._finish(self._engine)])
            return self._checked(self._held, self._types) if self._held else pa.table({})

    def rejects(self) -> pa.Table:
        """All rows so far that could not be used."""
        engine: Any = self._engine
        if engine is not None:
            return self._survivors.with_rejects(engine.rejects())
        if not self._held:
            raise BadArgument("Nothing has been judged yet: push some rows first (an empty frame is enough).")
        return self._early_rejects()

    def take_rejects(self) -> pa.Table | None:
        """The rows since the last call that could not be used, and forget them; None while pushes are held.

        `rejects` then has only later ones. For calls that run for days.
        """
        engine: Any = self._engine
        if engine is None:
            return self._early_rejects() if self._held and self._drained else None
        return self._survivors.with_rejects(engine.take_rejects(), taken=True)

    def counted(self) -> dict[str, int]:
        """Of a join or encounters: candidate pairs of the last push, and which bound decided them."""
        engine: Any = self._engine
        return engine.counted() if hasattr(engine, "counted") else {}

    def state(self) -> dict[str, int]:
        """``state_rows`` and (roughly) ``state_bytes`` held now; of standing queries, where rows are not held."""
        if self._engine is None:
            held = [table for push in self._held for table in push.values()]
            return {"state_rows": sum(map(len, held)), "state_bytes": sum(table.nbytes for table in held)}
        waits = {"state_rows": len(self._survivors), "state_bytes": self._survivors.nbytes}
        return {name: held + waits[name] for name, held in self._state_of(self._engine).items()}

    @property
    def engine(self) -> Engine | None:
        """What takes in rows; None while pushes are held."""
        return self._engine

    @property
    def settings(self) -> Mapping[str, Any]:
        """The arguments beside the streams, by name."""
        return self._settings

    @property
    def started(self) -> bool:
        """Whether something was pushed, or the streams have ended."""
        return bool(self._engine is not None or self._held or self._drained)

    def __copy__(self) -> Self:
        """The same call anew, as it was before the first push."""
        other = object.__new__(type(self))
        vars(other).update(vars(self) | self._unpushed())
        return other

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"A {type(self).__name__} holds the state of its rows, and cannot be pickled or deeply copied. copy.copy() "
            "makes the same call anew; state outlives a process in the checkpoint of a job or of ap.start()."
        )

    def _unpushed(self) -> dict[str, Any]:
        """What changes as rows are pushed, as it was before."""
        types = {name: FirstTypes(f"stream {name!r}", self._fixed(name)) for name in self._streams}
        fresh: dict[str, Any] = {"_types": types, "_held": [], "_engine": None, "_drained": False}
        fresh["_survivors"] = Survivors({})
        return fresh | {"_turn": Turn(keeps_rows=self._keeps_rows)}

    def explain(self) -> Explanation:
        """How the call is carried out, as from `explain`; known once its streams have types."""
        if self._engine is None:
            raise BadArgument("Nothing is known yet: push some rows of every stream first (an empty frame is enough).")
        return self._explained(self._engine)

    # What a kind of call is like.

    def _explained(self, engine: Any) -> Explanation:
        from appulse.engines.explain import Explanation

        return Explanation.of(engine.call, None)

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[Engine, Types]:
        """The engine for pushes such as these, and the types that are settled with it."""
        schemas = [self._schema(name, held) for name in self._streams]
        return self._engine_of(self._left(), schemas, self._settings), types

    def _left(self) -> list[Stream]:
        """The streams as the engine takes them in: without withdrawals, where it keeps no rows."""
        given = self._streams.values()
        return [
            survivor(one, signed=self._signed, filled=one.name in self._fills) if self._is_staged(one) else one
            for one in given
        ]

    def _is_staged(self, stream: Stream) -> bool:
        """Whether rows of a stream go through a stage before the engine has them."""
        return stream.name in self._fills or (self._withdraws_before and stream.change is not None)

    def _feed(self, engine: Any, tables: Frames) -> pa.Table:
        """The answers of a push."""
        return engine.push(tables)

    def _finish(self, engine: Any) -> pa.Table:
        """The answers of the end."""
        return engine.drain()

    def _state_of(self, engine: Any) -> dict[str, int]:
        return {"state_rows": len(engine.bucket), "state_bytes": int(engine.bucket.nbytes)}

    def _fixed(self, name: str) -> Iterable[str]:
        """The columns of a stream that keep their types."""
        return *self._identity(name), *self._streams[name].carry

    def _may_start(self, held: Sequence[Frames], types: Types, *, ended: bool) -> bool:
        """Whether the engine can be made."""
        if ended and held and self._settings.get("how", "inner") != "inner":
            self._check_shown(held)
        known = bool(held) and all(types[name].knows(self._identity(name)) for name in self._streams)
        return known and (ended or self._has_values(held))

    def _check_shown(self, held: Sequence[Frames]) -> None:
        """Raise `BadArgument` where a stream has shown no columns."""
        if len(self._shown(held)) < len(self._streams):
            raise BadArgument("A stream has shown no columns. Push every stream first (an empty frame is enough).")

    def _has_values(self, held: Sequence[Frames]) -> bool:
        """Whether some column says if values are numbers or vectors, where they may be either."""
        from appulse.model.vectors import is_open

        return not all(is_open(self._streams[name].value, self._schema(name, held)) for name in self._shown(held))

    def _checked(self, held: Sequence[Frames], types: Types) -> pa.Table:
        """No answers, in their columns once all are known; raises where the last of the pushes cannot be taken in."""
        return self._fed(held, types)[3] if len(self._shown(held)) == len(self._streams) else pa.table({})

    def _early_rejects(self) -> pa.Table:
        """The rows of held pushes that cannot be used."""
        self._check_shown(self._held)
        engine: Any
        engine, survivors, *_ = self._fed(self._held, self._types)
        return survivors.with_rejects(engine.rejects())

    # What they are made of.

    def _identity(self, name: str) -> tuple[str, ...]:
        """The columns of a stream that have to have types."""
        stream = self._streams[name]
        return stream.key, stream.time, *stream.partitions

    def _shown(self, held: Sequence[Frames]) -> list[str]:
        """The streams that have shown their columns, in the order of the call."""
        return [name for name in self._streams if any(name in push for push in held)]

    def _schema(self, name: str, held: Sequence[Frames]) -> pa.Schema:
        """The columns of a stream, with the types that any push has."""
        schema = schema_of([push[name] for push in held if name in push])
        stream = self._streams[name]
        at = schema.get_field_index(stream.change or "") if self._is_staged(stream) else -1
        schema = schema.remove(at) if at >= 0 else schema
        for field in beforehand_fields() if name in self._fills else ():
            schema = schema.append(field)
        return schema.append(pa.field(SIGN, pa.int32())) if self._signed else schema

    def _start(self, held: Sequence[Frames], types: Types) -> pa.Table:
        from appulse.engines.compiling import announce_compiling

        announce_compiling()
        self._engine, self._survivors, self._types, answers = self._fed(held, types)
        self._held = []
        return answers

    def _fed(self, held: Sequence[Frames], types: Types) -> tuple[Engine, Survivors, Types, pa.Table]:
        """An engine that has taken in pushes, what waits before it, the types settled with it, and the answers."""
        engine, types = self._make(held, types)
        survivors = self._surviving(held, types)
        parts = [self._feed(engine, survivors.push(fitted(push, types))) for push in held]
        return engine, survivors, types, pa.concat_tables(parts)

    def _surviving(self, held: Sequence[Frames], types: Types) -> Survivors:
        """What withdraws rows before the engine has them."""
        shown = [name for name in self._shown(held) if self._is_staged(self._streams[name])]
        schemas = [
            schema_of([fitted({name: push[name]}, types)[name] for push in held if name in push]) for name in shown
        ]
        settings = CallSettings(on_reject=self._settings["on_reject"], options=self._settings["options"])
        given = zip(shown, schemas, strict=True)
        return Survivors(
            {
                name: local_stage(self._streams[name], schema, settings, self._fills.get(name), signed=self._signed)
                for name, schema in given
            }
        )

    def _tables(self, frame: tuple[Any, ...], frames: Mapping[str, Any]) -> Frames:
        """The frames of a push as tables, in the order of the call."""
        if frame:
            if len(frame) > 1 or frames or len(self._streams) > 1:
                raise BadArgument("push() takes one frame of a single stream, else push(name=frame, ...).")
            frames = {next(iter(self._streams)): frame[0]}
        for name in frames:
            if name not in self._streams:
                there = ", ".join(sorted(self._streams))
                raise BadArgument(f"push({name}=...): there is no such stream. There are: {there}.")
        return {name: self._table(name, frames[name]) for name in self._streams if frames.get(name) is not None}

    def _table(self, name: str, frame: Any) -> pa.Table:
        """A frame as a table; one with the columns of the push before is one already."""
        seen = self._plain.get(name)
        if seen is not None and type(frame) is pa.Table and frame.schema.equals(seen, check_metadata=True):
            return frame
        table = as_given(as_table(frame), self._streams[name])
        if table is frame:
            self._plain[name] = table.schema
        return table


class Turn:
    """Around each push: one at a time, and none after one that stopped halfway, at ``max_output`` or bad bursts."""

    def __init__(self, *, keeps_rows: bool) -> None:
        self._keeps_rows = keeps_rows
        self._stopped: BaseException | None = None
        self._lock = Lock()

    def __enter__(self) -> None:
        self.check()
        if not self._lock.acquire(blocking=False):
            raise BadArgument("Another push is under way, in another thread. Push one after the other.")

    def check(self) -> None:
        """Raise `BadArgument` if one has stopped."""
        if isinstance(self._stopped, ImpossibleBursts):
            raise BadArgument(
                f"An earlier push had rows that ap.Bursts does not allow, and they are lost. {self._stopped} Make a "
                "new one, and push the rows again."
            )
        if self._stopped is not None:
            raise BadArgument(
                "An earlier push had more rows of output than Options(max_output=) allows, and its answers are lost. "
                "Make a new one, and push the rows again with a higher limit or in smaller parts."
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = error if self._keeps_rows and isinstance(error, OutputLimit | ImpossibleBursts) else None
        self._lock.release()


class Changing(ByHand[ChangingEngine]):
    """A call whose queries or fences change between pushes; changes before the first push wait for it."""

    def __init__(self, streams: Sequence[Stream], alone: str) -> None:
        self._waiting: list[pa.Table] = []
        super().__init__(streams, alone)

    def _fresh(self, held: Sequence[Frames], types: Types) -> ChangingEngine:
        """An engine without the changes that wait."""
        raise NotImplementedError

    def _take(self, table: pa.Table) -> None:
        """Change the engine, if there is one."""
        if self._engine is None:
            self._waiting.append(table)
        else:
            self._engine.change(table)

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[ChangingEngine, Types]:
        engine = self._fresh(held, types)
        for i, waiting in enumerate(self._waiting):
            try:
                engine.change(waiting)
            except AppulseError:  # it is forgotten, so that the push may be made again
                del self._waiting[i]
                raise
        return engine, types

    def _start(self, held: Sequence[Frames], types: Types) -> pa.Table:
        answers = super()._start(held, types)
        self._waiting = []
        return answers

    def _unpushed(self) -> dict[str, Any]:
        return super()._unpushed() | {"_waiting": list(self._waiting)}


def refuse_twice(streams: Sequence[Stream]) -> None:
    """Raise `BadArgument` where one stream is given twice."""
    if len({id(stream) for stream in streams}) < len(streams):
        raise BadArgument(
            "The same Stream is given twice. Rows of one stream are compared with each other by self_join(stream), "
            "encounters(stream) and outliers(stream). Else wrap the frame twice: two Streams are two streams."
        )


def fitted(tables: Frames, types: Types) -> Frames:
    """A push in the types of earlier ones; `BadArgument` where its values do not fit them."""
    return {name: types[name].fit(table) for name, table in tables.items()}
