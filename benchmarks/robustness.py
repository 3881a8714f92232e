"""What wrong, hostile and huge input does to calls, and to what others asked for.

Figures:

* ``wrong_type_escapes``: of 25,000 calls with odd values as arguments, those with an error that is none of appulse's.
* ``late_share_after_future_row``: share of the rows after one whose clock is a day ahead that come out as late, the
  worst of several joins.
* ``condition_1mb_seconds_over_10kb``: seconds for one condition of 1 MB / seconds for one of 10 kB, the worst of
  several shapes: 100 is linear.
* ``poisoned_query_others_lost``: answers of good queries that are lost to a bad one beside them, over all bad ones.
* ``tests_alone_failed``: tests that look for real data and fail in a copy of the checkout with nothing beside it.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from math import log
from typing import TYPE_CHECKING

import pyarrow as pa

import appulse as ap
from benchmarks.alone import lone_failures
from benchmarks.future_row import worst_late_share
from benchmarks.harness import arguments, report, say
from benchmarks.odd_arguments import escapes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CALLS = 25_000
_SIZES = (3_000, 10_000, 30_000, 100_000, 999_999)
_ENOUGH = 0.05  # seconds that tell how long a condition takes
_PATIENCE = 30.0  # seconds: what takes longer is projected
_GOOD = 200


def wrong_type_escapes(*, quick: bool) -> float:
    """Calls that raised what is no error of appulse's."""
    found = Counter(str(escape) for seed in range(1 if quick else 4) for escape in escapes(_CALLS, seed) if escape)
    for escape, times in found.most_common(20):
        say(f"{times} x {escape}")
    return found.total()


# --- long conditions ------------------------------------------------------------------------------------------------


def _repeated(part: str, between: str) -> Callable[[int], str]:
    return lambda size: between.join([part] * ((size + len(between)) // (len(part) + len(between))))


#: Texts of a size, good and bad ones.
SHAPES: dict[str, Callable[[int], str]] = {
    "AND chain": _repeated("x > 0", " AND "),
    "OR chain": _repeated("x = 1", " OR "),
    "AND chain of ranges": _repeated("x BETWEEN 0 AND 9", " AND "),
    "IN list": lambda size: f"x IN ({_repeated('1', ',')(size - 8)})",
    "sum": lambda size: f"x > {_repeated('1', '+')(size - 4)}",
    "one literal": lambda size: f"s = '{'a' * (size - 6)}'",
    "one literal of quotes": lambda size: f"s = '{chr(39) * 2 * ((size - 6) // 2)}'",
    "one literal, not closed": lambda size: f"s = '{'a' * (size - 5)}",
    "one name": lambda size: "a" * (size - 4) + " > 0",
    "digits, then a letter": lambda size: f"x > {'1' * (size - 5)}a",
    "digits": lambda size: f"x > {'1' * (size - 4)}",
    "spaces": lambda size: "x" + " " * (size - 4) + "> 0",
    "brackets": lambda size: "(" * size,
    "NOTs": _repeated("NOT", " "),
}
_ROWS = pa.table({"k": [1, 2], "t": [0.0, 1.0], "x": [1.0, 2.0], "s": ["a", "b"]})


def _stream(frame: pa.Table | None, name: str | None = None) -> ap.Stream:
    return ap.Stream(frame, key="k", time="t", value=ap.Exact("x"), name=name)


def _seconds(text: str) -> float:
    """Read a condition, and ask it of two rows: the best of several, where it is quick."""
    queries = pa.table({"query": [1], "condition": [text]})
    best = spent = 0.0
    while spent < _ENOUGH:
        begun = time.perf_counter()
        ap.ask(_stream(_ROWS), queries)
        took = time.perf_counter() - begun
        best, spent = min(best or took, took), spent + took
    return best


def condition_1mb_seconds_over_10kb() -> float:
    """The worst over the shapes; projected by the last two sizes where the next one would take too long."""
    ratios = {}
    _seconds("x > 0")
    for name, make in SHAPES.items():
        known = {size: _seconds(make(size)) for size in _SIZES[:2]}
        for size in _SIZES[2:]:
            (before, early), (last, late) = list(known.items())[-2:]
            projected = late * (size / last) ** (log(max(late / early, 1.0)) / log(last / before))
            known[size] = projected if projected > _PATIENCE else _seconds(make(size))
        ratios[name] = known[_SIZES[-1]] / known[10_000]
        say(f"{name}: {known[10_000]:.3g} s for 10 kB, {known[_SIZES[-1]]:.3g} s for 1 MB")
    return max(ratios.values())


# --- poisoned queries -----------------------------------------------------------------------------------------------

POISON: tuple[str | None, ...] = (
    *(
        None,
        "",
        " ",
        "\0",
        "x",
        "x >",
        "> 0",
        "1",
        "'a'",
        "NULL",
        "x > 0; DROP TABLE rows",
        "no_column > 0",
        "x > 'a'",
        "s > 1",
    ),
    *("x / 0 > 1", "x > 1e400", f"x > {'9' * 5000}", "x > 0.0000000000000000000000000000000000000000000001", "x = NaN"),
    *(
        "DATE '2024-01-01' = '2024-01-01'",
        "TIMESTAMP '9999-12-31 23:59:59' > t",
        "DATE '0000-00-00' > t",
        "s = DATE '2024-01-01'",
    ),
    *("x > 0 WITHIN 3 SECONDS", "x > 0 WITHIN 9223372036854775808 ROWS", "a.x = b.x WITHIN -1 ROWS", "WITHIN 1 SECOND"),
    *(
        "(" * 500,
        "NOT " * 500 + "x > 0",
        "x > 0 AND " * 500 + "x > 0",
        "s = '" + "a" * 10_000 + "'",
        "'a\0b' = s",
        "s = '\0'",
    ),
    *(
        "x > 0 AND x < 0",
        "x IS NULL",
        "x IN ()",
        "x IN (" + ",".join(map(str, range(5000))) + ")",
        "1 = 1",
        "TRUE",
        "FALSE",
    ),
    *(
        " OR ".join(f"(x > {i} AND x < {i}.5)" for i in range(2000)),
        "s LIKE 'a%'",
        "x BETWEEN 2 AND 1",
        "é > 0",
        '"x" > 0',
        "`x`>0",
    ),
)
POISON_OF_TWO = (
    *(
        "a.x = b.x WITHIN 9223372036854775807 ROWS",
        "a.x = b.x WITHIN 9223372036854775808 ROWS",
        "a.x = b.x WITHIN 0 ROWS",
    ),
    *(
        "a.x = b.x WITHIN 99999999999999999999 SECONDS",
        "a.x = b.x",
        "a.x = c.x WITHIN 1 SECOND",
        "a.x > 0 WITHIN 1 SECOND",
    ),
    *(
        "DATE '2024-01-01' = '2024-01-01' WITHIN 1 SECOND",
        "a.s = b.x WITHIN 1 SECOND",
        "a.x = b.x WITHIN 1e400 SECONDS",
    ),
    *("a.x = b.x WITHIN " + "9" * 5000 + " ROWS", "a.x = b.x WITHIN 3 ROWS WITHIN 3 ROWS", *POISON),
)


def poisoned_query_others_lost() -> float:
    """Over one and two streams, by call and by push, with each of the bad queries in the midst of good ones."""
    one = [f"x > {i / _GOOD * 3}" for i in range(_GOOD)]
    two = [f"a.x <= b.x AND a.x > {i / _GOOD * 3} WITHIN {1 + i % 3} SECONDS" for i in range(_GOOD)]
    lost = 0
    for good, bad, streams in ((one, POISON, ("rows",)), (two, POISON_OF_TWO, ("a", "b"))):
        for asked in (_by_call, _by_push):
            whole = asked(good, streams)
            for poison in bad:
                half = len(good) // 2
                try:
                    answers = asked([*good[:half], poison, *good[half:]], streams)
                except Exception as error:  # noqa: BLE001 - any error of the call takes the others' answers along
                    say(f"{poison!r:.60}: {type(error).__name__}: {str(error)[:100]}")
                    answers = Counter()
                missing = (whole - answers).total()
                lost += missing
    return lost


def _queries(conditions: Sequence[str | None]) -> pa.Table:
    # Good queries go by their texts: their answers are the same whatever stands beside them.
    names = [str(text) for text in conditions]
    return pa.table({"query": names, "condition": pa.array(conditions, pa.string())})


def _by_call(conditions: Sequence[str | None], streams: tuple[str, ...]) -> Counter[str]:
    return _counted(ap.match_queries(*(_stream(_ROWS, name) for name in streams), queries=_queries(conditions)))


def _by_push(conditions: Sequence[str | None], streams: tuple[str, ...]) -> Counter[str]:
    match = ap.QueryMatch(*(_stream(None, name) for name in streams))
    match.change(_queries(conditions))
    if len(streams) == 1:
        return _counted(match.push(_ROWS)) + _counted(match.push(_ROWS))
    answers = Counter[str]()
    for rows in (_ROWS.slice(0, 1), _ROWS.slice(1)):
        answers += _counted(match.push(**dict.fromkeys(streams, rows)))
    return answers + _counted(match.drain())


def _counted(answers: pa.Table) -> Counter[str]:
    if "query" not in answers.column_names:
        return Counter()
    return Counter(str(row) for row in answers.to_pylist())


def main() -> None:
    """All figures, or those named by ``--only``."""
    asked = arguments(__doc__ or "")
    measures: dict[str, Callable[[], float]] = {
        "wrong_type_escapes": lambda: wrong_type_escapes(quick=asked.quick),
        "late_share_after_future_row": lambda: worst_late_share(quick=asked.quick),
        "condition_1mb_seconds_over_10kb": condition_1mb_seconds_over_10kb,
        "poisoned_query_others_lost": poisoned_query_others_lost,
        "tests_alone_failed": lambda: lone_failures(quick=asked.quick),
    }
    figures = {}
    for name in asked.only.split(",") if asked.only else measures:
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = measures[name]()
        say(f"{name}: {value:g}, in {time.perf_counter() - begun:.0f} s")
        figures[name] = float(value)
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
