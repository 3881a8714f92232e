"""What calls mean: golden copies, what counts and what does not, and how differences are told."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import appulse as ap
from appulse.imputation.imputer import DependencyImputer
from appulse.imputation.versions import SavedImputer
from appulse.model.meaning import canonical, differences, digest, of_type, real, seconds
from tests.fixtures.meanings import FILE, KINDS, ROWS, every, meaning_of

if TYPE_CHECKING:
    from pathlib import Path


# --- golden copies ----------------------------------------------------------------------------------------------------


def test_no_meaning_changes_by_accident() -> None:
    """Checkpoints of users have these very words. A new argument with a default changes none of them."""
    kept, found = json.loads(FILE.read_text()), every()
    for name, meaning in found.items():
        assert name in kept, f"{name} is new: add it by python -m tests.fixtures.meanings"
        told = list(differences(kept[name], meaning))
        assert not told, f"{name} means something else than what checkpoints have: {told}"
    assert set(kept) == set(found), "a call that could be made, and be in a checkpoint, no longer can"


def test_a_meaning_is_the_same_in_every_process() -> None:
    program = "from tests.fixtures.meanings import KINDS; print([k.of().fingerprint() for k in KINDS.values()])"
    out = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", **PATHS},
    )
    assert out.stdout.strip() == str([kind.of().fingerprint() for kind in KINDS.values()])


PATHS = {"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}  # noqa: S108


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_travels_means_the_same(kind: str) -> None:
    call = KINDS[kind].of()
    assert pickle.loads(pickle.dumps(call)).meaning() == call.meaning()  # noqa: S301 - our own bytes


# --- what counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_calls_mean_the_same_exactly_where_they_are(kind: str, data: st.DataObject) -> None:
    """All arguments that change answers count, in whatever company; those of speed never do."""
    known = KINDS[kind]
    changed = data.draw(st.lists(st.sampled_from(sorted(known.arguments)), max_size=4, unique=True))
    one = {name: data.draw(st.integers(0, len(known.arguments[name]) - 1), label=name) for name in changed}
    other = dict(one)
    for name in data.draw(st.lists(st.sampled_from(sorted(known.arguments)), max_size=2, unique=True)):
        other[name] = data.draw(st.integers(0, len(known.arguments[name]) - 1), label=f"other {name}")
    speeds = [{name: data.draw(st.sampled_from(given)) for name, given in known.speed.items()} for _ in range(2)]
    calls = []
    for chosen, speed in zip((one, other), speeds, strict=True):
        arguments = {name: known.arguments[name][i] for name, i in chosen.items()}
        try:
            calls.append(known.of(**arguments, **speed))
        except (ap.BadArgument, ap.NotBuilt):
            assume(False)  # they do not go together
    same = _resolved(kind, one) == _resolved(kind, other)
    meanings = [canonical(call.meaning()) for call in calls]
    assert (meanings[0] == meanings[1]) is same
    assert (calls[0].fingerprint() == calls[1].fingerprint()) is same


def _resolved(kind: str, chosen: dict[str, int]) -> dict[str, Any]:
    """What was chosen, without what says the same in other words."""
    said = {name: i for name, i in chosen.items() if i}
    window = KINDS[kind].arguments.get("window", [None])[said.get("window", 0)]
    if kind.endswith("_join") and isinstance(window, ap.TimeWindow):
        said.pop("order", None)  # nothing waits for a tick to be complete
    if "two" in KINDS[kind].arguments and not KINDS[kind].arguments["two"][said.get("two", 0)]:
        said = {name: i for name, i in said.items() if not name.startswith("right_")}  # there is no right stream
    return said


EQUAL: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("self_join", {"window": ap.TimeWindow(60)}, {"window": ap.TimeWindow("1 minute")}),
    ("self_join", {"window": ap.TimeWindow(30)}, {"window": ap.TimeWindow(60, per_stream={"a": "30 s"})}),
    ("self_join", {"window": ap.TumblingWindow("1 minute")}, {"window": ap.TumblingWindow("60 seconds")}),
    ("self_join", {"epsilon": 2}, {"epsilon": 2.0}),
    ("self_join", {"epsilon": 0.0}, {"epsilon": -0.0}),
    ("self_join", {"partition_by": "g"}, {"partition_by": ["g"]}),
    ("self_join", {"lateness": "90 seconds"}, {"lateness": 90}),
    ("self_join", {"lateness": 0}, {"lateness": None}),
    (
        "self_join",
        {"value": ap.Gaussian("x", "y", sigma=(1, 1))},
        {"value": ap.Gaussian("x", "y", sigma=1.0, samples=64)},
    ),
    ("window_aggregate", {"aggregates": {"x": "sum"}}, {"aggregates": {"x": ["sum"]}}),
    ("sensor_join", {"window": ap.TimeWindow("1 minute")}, {"window": {None: 60}}),
    ("sensor_join", {"window": {"a": 1, "b": 2}}, {"window": {"b": 2, "a": 1}}),
]


@pytest.mark.parametrize(("kind", "one", "other"), EQUAL)
def test_the_same_in_other_words(kind: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert meaning_of(kind, **one) == meaning_of(kind, **other)


def test_a_saved_imputer_may_grow(tmp_path: Path) -> None:
    """A query goes on with a folder that has more rows than when it began; with another folder it does not."""
    rule = ap.DifferentialDependency({"x": 0.5}, "y", 2.0)
    imputer = DependencyImputer(ROWS, [rule])
    imputer.save(tmp_path / "one")
    imputer.save(tmp_path / "two")
    saved = SavedImputer(tmp_path / "one")
    before = meaning_of("imputed", imputer=saved)
    imputer.append(pa.table({"x": [9.0], "y": [1.0], "z": [0.0]}))
    imputer.save(tmp_path / "one")
    assert saved.bind("xy").number == 2
    assert meaning_of("imputed", imputer=saved) == before
    assert meaning_of("imputed", imputer=SavedImputer(tmp_path / "two")) != before


def test_no_name_of_the_code_is_in_a_meaning() -> None:
    """No module's path, no private name, no wording of another library."""
    for name, text in ((name, canonical(meaning)) for name, meaning in every().items()):
        for word in ("appulse", "pyarrow", "DataType", "numpy", "array(", "object at", "__", "timestamp[", "list<"):
            assert word not in text, f"{name}: {text}"


# --- its parts --------------------------------------------------------------------------------------------------------


TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "string_view": pa.string_view(),
    "large_binary": pa.large_binary(),
    "fixed_binary(3)": pa.binary(3),
    "date32": pa.date32(),
    "time32(ms)": pa.time32("ms"),
    "time64(ns)": pa.time64("ns"),
    "duration(us)": pa.duration("us"),
    "interval": pa.month_day_nano_interval(),
    "timestamp(us)": pa.timestamp("us"),
    "timestamp(us, UTC)": pa.timestamp("us", "UTC"),
    "timestamp(ns, Europe/Vienna)": pa.timestamp("ns", "Europe/Vienna"),
    "decimal128(10, 2)": pa.decimal128(10, 2),
    "decimal256(10, 2)": pa.decimal256(10, 2),
    "list(float64)": pa.list_(pa.float64()),
    "fixed_list(float64, 2)": pa.list_(pa.float64(), 2),
    "large_list(list(int8))": pa.large_list(pa.list_(pa.int8())),
    "list_view(int8)": pa.list_view(pa.int8()),
    "large_list_view(int8)": pa.large_list_view(pa.int8()),
    'struct("a": int64, "b, c": string)': pa.struct([("a", pa.int64()), ("b, c", pa.string())]),
    "map(string, list(int32))": pa.map_(pa.string(), pa.list_(pa.int32())),
    "dictionary(string)": pa.dictionary(pa.int8(), pa.string()),
    "run_end_encoded(int64)": pa.run_end_encoded(pa.int32(), pa.int64()),
    'sparse_union("a": int8)': pa.sparse_union([pa.field("a", pa.int8())]),
    'dense_union("a": int8)': pa.dense_union([pa.field("a", pa.int8())]),
    "extension(arrow.uuid, fixed_binary(16))": pa.uuid(),
}


@pytest.mark.parametrize("spelled", TYPES)
def test_types_have_a_spelling_of_ours(spelled: str) -> None:
    assert of_type(TYPES[spelled]) == spelled


def test_every_plain_type_is_known() -> None:
    for make in ("int", "uint"):
        for bits in (8, 16, 32, 64):
            assert of_type(getattr(pa, f"{make}{bits}")()) == f"{make}{bits}"
    assert len(set(map(of_type, TYPES.values()))) == len(TYPES)


def test_names_and_nulls_of_items_do_not_count() -> None:
    """Spark calls an item `element`, Arrow `item`."""
    items = [pa.field("element", pa.float64(), nullable=False), pa.field("item", pa.float64())]
    assert len({of_type(pa.list_(item)) for item in items}) == 1


@given(st.integers(0, 2**61))
def test_durations_are_told_exactly_as_users_write_them(micros: int) -> None:
    from fractions import Fraction

    from appulse.model.times import duration

    text = seconds(micros)
    assert Fraction(text.removesuffix(" seconds")) == Fraction(micros, 1_000_000)
    if micros < 2**50:
        assert duration(text) == micros


@given(st.floats(allow_nan=False))
def test_numbers_are_kept_to_the_last_bit(value: float) -> None:
    kept = json.loads(canonical(real(value)))
    assert float(kept) == value
    assert str(kept) != "-0.0"


# --- differences ------------------------------------------------------------------------------------------------------


def test_differences_are_told_in_the_words_of_the_call() -> None:
    told = list(
        differences(
            meaning_of("similarity_join", epsilon=50.0, left_lateness=5),
            meaning_of("similarity_join", epsilon=60.0, emit="changes", right_value=ap.Gaussian("x", "y", sigma="s")),
        )
    )
    assert told == [
        'emit: the checkpoint has none, the job asks for "changes"',
        "epsilon: the checkpoint has 50.0, the job asks for 60.0",
        'streams.a.lateness: the checkpoint has "5 seconds", the job asks for none',
        'streams.b.value.kind: the checkpoint has "Exact", the job asks for "Gaussian"',
        'streams.b.value.sigma: the checkpoint has none, the job asks for "s"',
    ]
    renamed = differences(meaning_of("similarity_join"), meaning_of("similarity_join", left_name="vans"))
    assert list(renamed) == ['streams: the checkpoint has ["a", "b"], the job asks for ["vans", "b"]']


@given(st.data())
def test_differences_are_told_exactly_where_there_are_some(data: st.DataObject) -> None:
    plain = st.one_of(st.booleans(), st.integers(), st.text(max_size=3))
    meanings = st.dictionaries(st.sampled_from("abc"), st.one_of(plain, st.lists(plain, max_size=2)), max_size=3)
    streams = st.lists(meanings.map(lambda one: one | {"name": str(len(one))}), max_size=2)
    whole = st.builds(lambda one, two: one | {"streams": two}, meanings, streams)
    kept, asked = data.draw(whole), data.draw(whole)
    assert bool(list(differences(kept, asked))) is (kept != asked)
    assert not list(differences(kept, json.loads(canonical(kept))))


def test_a_digest_is_of_the_whole_meaning() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1})
    assert len({KINDS[kind].of().fingerprint() for kind in KINDS}) == len(KINDS)


def test_a_call_with_more_dimensions_known_than_asked_for() -> None:
    """What rows tell in process is no part of what Spark has to know."""
    call = KINDS["self_join"].of(value=ap.Samples("l"))
    assert call.with_dimensions(1).meaning() == replace(call, options=ap.Options(index="dense")).meaning()
