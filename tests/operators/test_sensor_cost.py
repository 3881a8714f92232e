"""How much work sensor joins do, by counts."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.kernels.properties import SLOPE, SUMMARY, Found, Measured, link, properties
from appulse.model import readings as model
from appulse.model.readings import Readings
from appulse.model.strings import decode, encode
from appulse.operators.properties import Properties, Property

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.model.strings import Bytes


#: Values that differ by more bits than are read of a sum.
WIDE = ("of any size", "huge")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many labels are decoded, by call."""
    counts: list[int] = []

    def counted(strings: Bytes, kind: pa.DataType) -> pa.Array:
        counts.append(len(strings))
        return decode(strings, kind)

    monkeypatch.setattr(model, "decode", counted)
    return counts


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), [f"word {i}" for i in range(100)]),
        (pa.struct([("mean", pa.float64())]), [{"mean": i / 4} for i in range(100)]),
        (pa.dictionary(pa.int32(), pa.string()), [f"word {i}" for i in range(100)]),
    ],
)
def test_few_values_of_many_labels(decoded: list[int], kind: pa.DataType, values: list[object]) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    label = tuple(encode(pa.array(values, plain)).to_list())
    codes = np.array([70, 3, 70, 99, 0], np.int64)
    found = model.values_of(codes, label, kind)
    assert found.type == plain
    assert found.to_pylist() == [values[code] for code in codes]
    assert decoded == [4]
    assert len(model.values_of(codes[:0], label, kind)) == 0
    assert model.values_of(np.arange(200) % 100, label, kind).to_pylist() == 2 * values
    assert decoded == [4, 0, 100]


def test_summaries_are_decoded_where_they_are_named(decoded: list[int]) -> None:
    """Answers come in slices of the readings; each decoded the summaries of all of them."""
    chance, n = np.random.default_rng(0), 30_000
    value = chance.uniform(0, 100, n)
    table = pa.table({"id": chance.integers(0, 200, n), "t": np.arange(n) * 0.01, "v": value})
    readings = ap.Stream(table, key="id", time="t", value="v")
    found = ap.sensor_join(readings, window="1 second", resolution=0.5, similar="summary", over="10 seconds")
    assert found.num_rows > 500
    assert sum(decoded) <= found.num_rows


def _readings(table: pa.Table) -> Readings:
    bits = encode(table["v"].combine_chunks()).data.view(">u8").astype(np.uint64).view(np.int64)
    return Readings(np.asarray(table["t"]), encode(table["id"].combine_chunks()), bits)


def _table(n: int, sensors: int, seed: int = 0) -> pa.Table:
    chance = np.random.default_rng(seed)
    value = np.round(chance.uniform(0, 100, n), 1)
    return pa.table({"id": chance.integers(0, sensors, n), "t": np.arange(n) * 10_000, "v": value})


@pytest.mark.parametrize("kind", ["slope", "summary"])
@pytest.mark.parametrize("over", [1, 1_000_000, 10**12])
def test_a_reading_is_looked_at_as_it_comes_and_as_it_leaves(kind: str, over: int) -> None:
    """However many readings a sensor looks back on: each was looked at once for each that came after it."""
    n = 20_000
    judged = Properties(Property(kind, over, 1.0, pa.float64()))
    judged.of([_readings(_table(n, 4))])
    assert n <= judged.looked <= 2 * n


@pytest.mark.parametrize("kind", ["slope", "summary", "pattern"])
def test_a_push_looks_at_the_sensors_in_it(kind: str) -> None:
    """Not at what other sensors have, and not at what is out of sight."""
    rows = _table(20_000, 1_000)
    judged = Properties(Property(kind, 50_000_000, 1.0, pa.float64()))
    judged.of([_readings(rows.slice(0, 19_990))])
    before = judged.looked
    judged.of([_readings(rows.slice(19_990, 5))], keeping=False)
    judged.of([_readings(rows.slice(19_990, 10))])
    assert judged.looked - before < 500


@pytest.mark.parametrize("kind", ["slope", "summary", "pattern"])
def test_no_push_or_probe_changes_a_property(kind: str) -> None:
    rows = _table(2_000, 7)
    asked = Property(kind, 3_000_000, 0.1, pa.float64())
    whole = Properties(asked).of([_readings(rows)])
    judged, found = Properties(asked), list[Readings]()
    for at in range(0, len(rows), 37):
        part = _readings(rows.slice(at, 37))
        probed, kept = judged.of([part], keeping=False), judged.of([part])
        assert _all_told(probed) == _all_told(kept)
        found += kept
    assert _all_told(found) == _all_told(whole)


def _all_told(parts: list[Readings]) -> list[Any]:
    found: list[Any] = []
    for part in parts:
        value = [part.label[code] for code in part.bits.tolist()] if part.label else part.bits.tolist()
        found += zip(part.time.tolist(), part.sensor.to_list(), value, strict=True)
    return found


def test_sensors_that_went_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that stay, or come again, are judged by what they had."""
    monkeypatch.setattr("appulse.operators.properties._UNITS", 16)
    sensor = np.where(np.arange(3_000) % 3 == 0, 0, np.arange(3_000) % 400)
    rows = _table(3_000, 1).set_column(0, "id", pa.array(sensor))
    asked = Property("slope", 1_000_000, 0.1, pa.float64())
    whole, judged, found = Properties(asked).of([_readings(rows)]), Properties(asked), list[Readings]()
    for at in range(0, len(rows), 50):
        found += judged.of([_readings(rows.slice(at, 50))])
        assert len(judged._units) < 250
    assert _all_told(found) == _all_told(whole)


def _values(kind: str, chance: np.random.Generator, n: int) -> NDArray[np.float64]:
    if kind == "tenths":
        return np.round(chance.normal(20, 1, n), 1)
    if kind == "level":
        return np.full(n, 50.1)
    if kind == "far":
        return chance.normal(0, 1, n) + 1e9
    if kind == "of any size":
        return chance.normal(0, 1, n) * 10.0 ** chance.integers(-300, 150, n)
    return chance.choice([0.0, 5e-324, -5e-324, 1e-310] if kind == "tiny" else [1.7e308, -1.7e308, 1e308, 1.0], n)


@pytest.mark.parametrize("kind", ["tenths", "level", "far", "of any size", "tiny", "huge"])
@pytest.mark.parametrize("step", [1, 10**6, 10**15])
def test_means_and_slopes_are_the_next_doubles(kind: str, step: int) -> None:
    """Deviations, and means of what differs by more than 160 bits, but for the last bit."""
    for seed in range(6):
        chance = np.random.default_rng(seed)
        value = _values(kind, chance, 40)
        time = np.cumsum(chance.integers(0, 3, 40)) * step + int(chance.integers(-(10**17), 10**17))
        over = int(chance.choice([0, 3, 10, 100])) * step
        summaries, slopes = (_found(one, time, value, over) for one in (SUMMARY, SLOPE))
        for i in range(40):
            seen = [j for j in range(i + 1) if time[i] - time[j] <= over]
            v, t = [Fraction(float(value[j])) for j in seen], [Fraction(int(time[j] - time[i])) for j in seen]
            n, total, times = len(seen), sum(v, Fraction(0)), sum(t, Fraction(0))
            assert abs(summaries.first[i] - float(total / n)) <= (math.ulp(total / n) if kind in WIDE else 0.0)
            squares = sum((x * x for x in v), Fraction(0))
            assert _is_root(float(summaries.second[i]), squares / n - (total / n) ** 2)
            along = n * sum((x * x for x in t), Fraction(0)) - times**2
            if along == 0:
                assert math.isnan(slopes.first[i])
                continue
            both = sum((x * y for x, y in zip(t, v, strict=True)), Fraction(0))
            slope = 10**6 * (n * both - times * total) / along
            if abs(slope) < 10**308:
                assert slopes.first[i] == pytest.approx(float(slope), rel=3e-16, abs=5e-324)


def _found(kind: int, time: NDArray[np.int64], value: NDArray[np.float64], over: int) -> Found:
    n = len(time)
    before, found = np.empty(n, np.int64), Found(np.empty(n), np.empty(n), np.empty(n, np.int64))
    by_unit = link(np.zeros(n, np.int64), np.full(1, -1), 0, 0, before)
    properties(Measured(time, value, before, 0), 0, *by_unit, over, kind, found)
    return found


def _is_root(found: float, square: Fraction) -> bool:
    least = max(Fraction(0), Fraction(found) - 2 * Fraction(math.ulp(found)))
    most = Fraction(found) + 2 * Fraction(math.ulp(found))
    return bool(least * least <= square <= most * most)


def test_a_level_sensor_has_one_mean_and_no_slope() -> None:
    """Of 50.1 added up some number of times a share is less than 50.1, and so in another bin."""
    n = 200
    time = np.arange(n) * 1_000
    summaries, slopes = (_found(one, time, np.full(n, 50.1), 10**6) for one in (SUMMARY, SLOPE))
    assert set(summaries.first.tolist()) == {50.1}
    assert set(summaries.second.tolist()) == {0.0}
    assert set(slopes.first[1:].tolist()) == {0.0}
