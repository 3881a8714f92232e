"""Arguments of wrong types, and how they are told; the calls of the fuzz are those of benchmarks/odd_arguments.py."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import appulse as ap
from appulse.arguments import Count, Name, Names, NotNegative, Real, checked, shown
from benchmarks.odd_arguments import READINGS, VALUES, escapes, stream, targets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_no_argument_of_a_wrong_type_escapes() -> None:
    """Of 25,000 calls with odd values, each raises an error of appulse's own, or none."""
    found = list(escapes(25_000))
    assert len(found) == 25_000
    assert Counter(str(escape) for escape in found if escape is not None) == {}


def test_the_fuzz_knows_every_public_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors and lab, which is beside the joins, aside; and calls that are right raise nothing."""
    known = {target.name.split(",")[0] for target in targets()}
    public = set(ap.__all__) - {"version", "lab", "ZeroFill", "LastValueImputer", "Explanation", "Plan"}
    assert {name for name in public if not isinstance(getattr(ap, name), type) or _is_made(name)} <= known
    wrong = {
        "decode_messages",
        "start",
        "listen",
        "session",
        "DependencyImputer.load",
        "SavedImputer",
        "AutoImputer.bind",
        "MqttReader",  # a port of 0: none is opened
        "mqtt_stream",
    }
    monkeypatch.chdir(tmp_path)
    for target in targets():
        if target.name not in wrong:
            target.call(**target.usual)
    assert len(VALUES) > 100


def _is_made(name: str) -> bool:
    return not issubclass(getattr(ap, name), Exception)


@checked
def _checked_call(
    real: Real = 0.0, size: Count = 1, by: Names = (), *more: Name, flag: bool = False, **others: NotNegative
) -> Any:
    return real, size, by, more, flag, others


_call: Any = _checked_call  # wrong types are what is tried


def test_what_stands_for_a_number_or_a_name_is_converted() -> None:
    """To what the function's code is written for."""
    for half in (0.5, np.float32(0.5), Fraction(1, 2), Decimal("0.5"), np.longdouble(0.5)):
        assert (type(_call(half)[0]), _call(half)[0]) == (float, 0.5)
    for three in (3, np.int8(3), np.uint64(3)):
        assert (type(_call(size=three)[1]), _call(size=three)[1]) == (int, 3)
    assert _call(0, 1, "x")[2] == ("x",)
    assert _call(0, 1, np.array(["x", "y"]))[2] == ("x", "y")
    assert _call(0, 1, (), np.str_("z"), flag=np.True_, rest=1) == (0.0, 1, (), ("z",), True, {"rest": 1.0})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _call("5"), r"^_checked_call\(real='5'\): give a finite number, got text\.$"),
        (lambda: _call(True), "got bool"),
        (lambda: _call(np.nan), "give a finite number"),
        (lambda: _call(10**400), r"below 1\.8e308"),
        (lambda: _call(size=2**63), "at most 4,611,686,018,427,387,904"),
        (lambda: _call(size=1.0), "give a whole number, at least 1, got float"),
        (lambda: _call(size=np.timedelta64(3, "s")), r"got numpy\.timedelta64"),
        (lambda: _call(by=["x", 3]), "the name of a column, or several, got list"),
        (lambda: _call(by="\ud800"), "got text"),
        (lambda: _call(0, 1, (), 3), r"^_checked_call\(3\): give the name of a column"),
        (lambda: _call(flag=1), r"flag=1\): give True or False"),
        (lambda: _call(others=-1), r"others=-1\): give a finite number, at least 0\."),
        (lambda: _call(np.zeros(1000)), r"real=<numpy\.ndarray>"),
        (lambda: _call(pd.NA), "got pandas"),
        (
            lambda: ap.SensorJoin(ap.Stream(None, key="k", time="t", value="x"), window=[]),
            r"SensorJoin\(window=\[\]\): give a duration",
        ),
        (lambda: ap.similarity_join(*[READINGS] * 2, epsilon=1, probability=1, window=1), "Wrap the frame"),
    ],
)
def test_errors_say_which_argument_what_was_there_and_what_to_give(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ap.BadArgument, match=message):
        make()


def test_what_python_says_of_missing_and_unknown_arguments_stays() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'condition'"):
        ap.filter(stream())  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'sise'\. Did you mean 'size'\?"):
        ap.CountWindow(sise=3)  # type: ignore[call-arg]


def test_values_in_messages_are_short() -> None:
    """Whatever their own way to show themselves does."""

    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    for value in (
        "x" * 10_000,
        10**400,
        10**5000,
        list(range(10_000)),
        dict.fromkeys(range(99), "x" * 100),
        Silent(),
        READINGS,
    ):
        assert len(shown(value)) < 500
        assert len(shown([value, value])) < 1500
    assert shown(Silent()) == "<tests.Silent>"
    assert shown(pa.table({})) == "<pyarrow.Table>"
    assert shown(np.float64(0.5)) == "np.float64(0.5)"
    assert shown(timedelta(1)) == "datetime.timedelta(days=1)"
