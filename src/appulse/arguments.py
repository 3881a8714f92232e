"""What arguments of public calls may be: their annotations say it, and `checked` sees to it.

    @checked
    def similarity_join(left: Stream, *, epsilon: NotNegative, window: Window, values: bool = False) -> ...

An annotation is a class, ``Any``, a union, or an alias: an `Annotated` type with a `Kind`, such as those below. A value
is taken as its annotation says, and the function gets what its kind makes of it; or it is refused by a `BadArgument`
that says which argument it was, what was there and what to give. These rules hold everywhere:

* A real is a number of Python or numpy, a `Fraction` or a `Decimal`. The function gets the nearest double, which is
  finite.
* A whole number is an integer of Python or numpy, at most 2^62, so that sums fit int64. The function gets an ``int``.
* A bool is no number, and a number is no bool. `numpy.timedelta64` is neither.
* Text can be encoded as UTF-8. Where several names are asked for, one stands for itself.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from errno import ENAMETOOLONG
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral
from numbers import Real as RealNumber
from os import PathLike
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from appulse.errors import AppulseError, BadArgument, nearest

_Checked = TypeVar("_Checked", bound=Callable[..., Any])
_MOST_WHOLE = 1 << 62


class Unfit(Exception):
    """A value is not of a kind; a message says why, and what to give, where the kind's own words do not."""


@dataclass(frozen=True)
class Kind:
    """What to give, in words, and what takes a value: it returns what the function gets, and may raise anything."""

    wanted: str
    take: Callable[[Any], Any]

    def __call__(self, value: Any, head: str, tail: str = "") -> Any:
        """The value as it is used; `BadArgument` calls it ``<head><value><tail>``."""
        try:
            return self.take(value)
        except AppulseError:
            raise
        except Unfit as error:
            reason = str(error)
        except Exception:  # noqa: BLE001 - a value's own methods may raise anything
            reason = ""
        given = f"{head}{shown(value)}{tail}"
        raise BadArgument(f"{given}: {reason or f'give {self.wanted}, got {_type_of(value)}.'}")


# --- kinds ----------------------------------------------------------------------------------------------------------


def number(
    *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf, infinite: bool = False
) -> Kind:
    """A number in a range, finite unless it may be ``infinite``."""
    ends = [f"at least {least:g}"] * (least > -math.inf) + [f"above {above:g}"] * (above > -math.inf)
    wanted = ", ".join(
        ["a number" if infinite else "a finite number", *ends, *[f"at most {most:g}"] * (most < math.inf)]
    )

    def take(value: Any) -> float:
        if isinstance(value, bool | np.timedelta64) or not isinstance(value, RealNumber | Decimal):
            raise Unfit
        try:
            given = float(value)
        except OverflowError:
            raise Unfit(f"give {wanted}, and below 1.8e308.") from None
        if math.isinf(given) and infinite and given >= least:
            return given
        if not (math.isfinite(given) and above < given <= most and given >= least):
            raise Unfit(f"give {wanted}.")
        return given

    return Kind(wanted, take)


def whole(least: int | None = None, most: int = _MOST_WHOLE, of: str = "") -> Kind:
    """A whole number in a range; ``of`` says what it counts."""
    low = -_MOST_WHOLE if least is None else least
    wanted = f"a whole number{f' of {of}' if of else ''}" + ("" if least is None else f", at least {least}")

    def take(value: Any) -> int:
        if isinstance(value, bool | np.timedelta64) or not isinstance(value, Integral):
            raise Unfit
        given = int(value)
        if given > most:
            raise Unfit(f"give {wanted}, and at most {most:,}.")
        if given < low:
            raise Unfit(f"give {wanted}.")
        return given

    return Kind(wanted, take)


def one_of(*choices: str, shown: Sequence[str] | None = None) -> Kind:
    """One of some words; ``shown`` are those that an error lists, where all of them are many."""
    options = choices if shown is None else shown
    wanted = " or ".join(map(repr, options)) if len(options) < 3 else f"one of {', '.join(map(repr, options))}"

    def take(value: Any) -> str:
        given = _text(value)
        if given not in choices:
            hint = nearest(given, choices)
            raise Unfit(f"give {wanted}.{hint if hint.startswith(' Did') else ''}")
        return given

    return Kind(wanted, take)


def several(kind: Kind, wanted: str, least: int = 0, single: type | None = None) -> Kind:
    """A list, tuple or the like of values of a kind, as a tuple; one of type ``single`` stands for a tuple of one."""

    def take(value: Any) -> tuple[Any, ...]:
        if single is not None and isinstance(value, single):
            value = (value,)
        if not isinstance(value, Collection) or isinstance(value, str | bytes | bytearray | Mapping):
            raise Unfit
        if len(value) < least:
            raise Unfit(f"give {wanted}.")
        return tuple(kind.take(one) for one in value)

    return Kind(wanted, take)


def mapping(key: Kind, of: Kind, wanted: str, least: int = 0) -> Kind:
    """A mapping of keys of a kind to values of another, as a dict."""

    def take(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise Unfit
        if len(value) < least:
            raise Unfit(f"give {wanted}.")
        return {key.take(k): of.take(v) for k, v in value.items()}

    return Kind(wanted, take)


def instance(of: Any, wanted: str) -> Kind:
    """An instance of a class, or of one of several."""

    def take(value: Any) -> Any:
        if not isinstance(value, of):
            raise Unfit
        return value

    return Kind(wanted, take)


def has(method: str, wanted: str) -> Kind:
    """Any object with a method."""

    def take(value: Any) -> Any:
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise Unfit
        return value

    return Kind(wanted, take)


def function(*arguments: str) -> Kind:
    """A function of so many arguments, which are named in what is wanted."""
    wanted = f"a function of {' and '.join(arguments)}"

    def take(value: Any) -> Any:
        if not callable(value) or isinstance(value, type):
            raise Unfit
        with suppress(ValueError):  # of some builtins nothing is known
            signature(value).bind(*arguments)
        return value

    return Kind(wanted, take)


def either(*kinds: Kind) -> Kind:
    """What any of some kinds takes, asked in order."""
    wanted = " or ".join(kind.wanted for kind in kinds if kind is not NOTHING)

    def take(value: Any) -> Any:
        reason = ""
        for kind in kinds:
            try:
                return kind.take(value)
            except Unfit as error:
                reason = reason or str(error)
            except Exception:  # noqa: BLE001, S112 - it is not of this kind
                continue
        raise Unfit(reason)

    return Kind(wanted, take)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit
    value.encode()  # no lone surrogates
    return str(value)


def _name(value: Any) -> str:
    if not _text(value):
        raise Unfit("the name is empty. Give one.")
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise Unfit
    return bool(value)


def _path(value: Any) -> Path:
    path = Path(value) if isinstance(value, PathLike) else Path(_name(value))
    if "\0" in str(path):
        raise Unfit("a path holds no NUL. Give another.")
    path = path.expanduser()
    try:
        path.exists()
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise Unfit("the path is longer than the system takes. Give another.") from None
    return path


ANYTHING = Kind("anything", lambda value: value)


def _attributes(value: Any) -> tuple[str, ...]:
    letters = list(value) if isinstance(value, str) else value  # "ab" is ("a", "b"), as for any sequence
    names: tuple[str, ...] = several(NAME, "names of attributes", least=1).take(letters)
    return names


TEXT = Kind("text", _text)
NAME = Kind("the name of a column", _name)
FLAG = Kind("True or False", _flag)
NOTHING = instance(type(None), "None")
REAL, NOT_NEGATIVE, POSITIVE = number(), number(least=0.0), number(above=0.0)

Real: TypeAlias = Annotated[float, REAL]
NotNegative: TypeAlias = Annotated[float, NOT_NEGATIVE]
Positive: TypeAlias = Annotated[float, POSITIVE]
Probability: TypeAlias = Annotated[float, number(above=0.0, most=1.0)]
Probabilities: TypeAlias = Annotated[
    float | Sequence[float], several(number(above=0.0, most=1.0), "numbers above 0, at most 1", least=1, single=float)
]
Count: TypeAlias = Annotated[int, whole(1)]
Seed: TypeAlias = Annotated[int, whole(0)]
Name: TypeAlias = Annotated[str, NAME]
NAMES = several(NAME, "the name of a column, or several", single=str)
Names: TypeAlias = Annotated[str | Sequence[str], NAMES]
Attributes: TypeAlias = Annotated[Sequence[str], Kind("names of attributes", _attributes)]
OnReject: TypeAlias = Annotated[str, one_of("collect", "fail")]
Folder: TypeAlias = Annotated[str | Path, Kind("a path", _path)]


# --- what checks them -----------------------------------------------------------------------------------------------


def checked(made: _Checked) -> _Checked:
    """A function, or a class by its ``__init__``, whose arguments are taken as their annotations say."""
    if isinstance(made, type):
        made.__init__ = _checking(made.__init__, made.__qualname__, made.__module__)  # type: ignore[misc]
        return cast("_Checked", made)
    return cast("_Checked", _checking(made, made.__qualname__, made.__module__))


def _checking(made: Callable[..., Any], name: str, module: str) -> Callable[..., Any]:
    known: list[_Kinds] = []

    @wraps(made)
    def call(*args: Any, **named: Any) -> Any:
        if not known:  # annotations may name what is defined after the function
            known.append(_Kinds.of(made, name, module))
        kinds = known[0]
        given = [kinds.take_at(i, value) for i, value in enumerate(args)]
        return made(*given, **{what: kinds.take(what, value) for what, value in named.items()})

    # Annotations name how arguments are checked; at a prompt, names and defaults say more.
    shown = signature(made)
    bare = [one.replace(annotation=Parameter.empty) for one in shown.parameters.values()]
    vars(call)["__signature__"] = shown.replace(parameters=bare, return_annotation=Parameter.empty)
    return call


@dataclass(frozen=True)
class _Kinds:
    """The kinds of a function's arguments, by place and by name; ``more`` and ``others`` are those of * and **."""

    name: str
    places: tuple[str, ...]
    by_name: dict[str, Kind]
    more: Kind
    others: Kind | None

    @staticmethod
    def of(made: Callable[..., Any], name: str, module: str) -> _Kinds:
        parameters = signature(made).parameters.values()
        said = {p.name: p.annotation for p in parameters if p.annotation is not Parameter.empty}
        hints = get_type_hints(
            types.SimpleNamespace(__annotations__=said), vars(sys.modules[module]), include_extras=True
        )
        kinds = {p.name: kind_of(hints.get(p.name, Any)) for p in parameters}
        star = {p.kind: kinds.pop(p.name) for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        return _Kinds(
            name,
            tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)),
            kinds,
            star.get(Parameter.VAR_POSITIONAL, ANYTHING),
            star.get(Parameter.VAR_KEYWORD),
        )

    def take(self, what: str, value: Any) -> Any:
        kind = self.by_name.get(what, self.others)
        if kind is None:  # as Python has it, with a hint
            known = [name for name in self.by_name if name != "self"]
            raise TypeError(f"{self.name}() got an unexpected keyword argument {what!r}.{nearest(what, known)}")
        return kind(value, f"{self.name}({what}=", ")")

    def take_at(self, place: int, value: Any) -> Any:
        if place < len(self.places):
            return self.take(self.places[place], value)
        return self.more(value, f"{self.name}(", ")")


def kind_of(annotation: Any) -> Kind:
    """What an annotation says of values."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return next(part for part in parts[1:] if isinstance(part, Kind))
    if origin in (Union, types.UnionType):
        return either(*map(kind_of, parts))
    return instance(annotation, f"an ap.{annotation.__name__}")


_PLAIN: dict[Any, Kind] = {Any: ANYTHING, bool: FLAG, str: TEXT, None: NOTHING, type(None): NOTHING}


# --- values in messages ---------------------------------------------------------------------------------------------


class _Short(Repr):
    """Values cut to what fits a message; of what is no plain value the type alone."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlong = self.maxstring = self.maxother = 60
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple, self.maxset = 3, 4, 6, 6, 6

    def repr_int(self, x: int, level: int) -> str:
        """Python writes no more than some thousand digits."""
        return super().repr_int(x, level) if x.bit_length() < 4096 else f"<int of {x.bit_length():,} bits>"

    def repr_instance(self, x: Any, level: int) -> str:
        """Frames and models have long ones."""
        plain = x is None or isinstance(x, RealNumber | Decimal | complex | np.generic | str | bytes | date | timedelta)
        return super().repr_instance(x, level) if plain else f"<{_type_of(x)}>"


_SHORT = _Short()


def shown(value: object) -> str:
    """A value in a message: as Python writes it, cut where it is long."""
    try:
        return _SHORT.repr(value)
    except Exception:  # noqa: BLE001 - a value's own methods may raise anything
        return f"<{_type_of(value)}>"


def _type_of(value: object) -> str:
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return {str: "text", type(None): "None"}.get(kind) or (
        kind.__name__ if package == "builtins" else f"{package}.{kind.__name__}"
    )
