"""Standing queries on real measurements: rules over Beijing's air by pandas, joins of two cities' weather by loops.

Each test on real data has a small generated twin that always runs.
"""

from __future__ import annotations

from itertools import product
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AIR = "beijing_multisite_air/prsa_2013_2017.parquet"
WEATHER = "weather_hourly_36_cities"
MEASURED = ("temperature", "pressure", "humidity", "wind_speed")


# --- threshold rules over one stream ----------------------------------------------------------------------------


class Rule(NamedTuple):
    """A condition with places for readings, the columns these are drawn from, and its truth as pandas has it."""

    text: str
    drawn: tuple[str, ...]
    truth: Callable[..., Any]


# pandas' nullable types have SQL's three values: what is compared with a gap is neither true nor false.
RULES = (
    Rule('"PM2.5" > {} AND WSPM < {}', ("PM2.5", "WSPM"), lambda r, dirt, wind: (r.pm25 > dirt) & (r.wspm < wind)),
    Rule('"PM2.5" IS NULL AND PM10 >= {}', ("PM10",), lambda r, dirt: r.pm25.isna() & (r.pm10 >= dirt)),
    Rule('"PM2.5" > PM10 AND CO >= {}', ("CO",), lambda r, co: (r.pm25 > r.pm10) & (r.co >= co)),
    Rule("NOT (SO2 <= {} OR NO2 < {})", ("SO2", "NO2"), lambda r, so2, no2: ~((r.so2 <= so2) | (r.no2 < no2))),
    Rule(
        "TEMP BETWEEN {} AND {} AND wd IN ('N', 'NNE')",
        ("TEMP", "TEMP"),
        lambda r, low, high: r.temp.between(low, high) & ((r.wd == "N") | (r.wd == "NNE")),
    ),
    Rule(
        "wd NOT IN ('S', 'SE') AND (O3 NOT BETWEEN {} AND {} OR CO IS NULL)",
        ("O3", "O3"),
        lambda r, low, high: ~((r.wd == "S") | (r.wd == "SE")) & (~((r.o3 >= low) & (r.o3 <= high)) | r.co.isna()),
    ),
    Rule(
        "(TEMP - DEWP <= 2.5 OR RAIN > 0) AND PRES < {} AND hour IN (7, 8, 9)",
        ("PRES",),
        lambda r, high: ((r.temp - r.dewp <= 2.5) | (r.rain > 0)) & (r.pres < high) & r.hour.between(7, 9),
    ),
    Rule(
        "time BETWEEN '{}' AND '{}' AND NOT \"PM2.5\" * 2 <= PM10 * 3 - 50",
        ("time", "time"),
        lambda r, first, last: (r.time >= first) & (r.time <= last) & ~(r.pm25 * 2 <= r.pm10 * 3 - 50),
    ),
)


def _beijing(file: Path) -> pa.Table:
    """The year 2015 of twelve stations, in which every measure has gaps."""
    air = pq.read_table(file, filters=[("year", "=", 2015)])
    parts = air.select(["year", "month", "day", "hour"]).to_pandas()
    return air.append_column("time", pa.array(pd.to_datetime(parts), pa.timestamp("us")))


def _generated_air() -> pa.Table:
    """Three stations over two months, with a gap in fifty readings."""
    random = np.random.default_rng(3)
    n = 3 * 1500
    hours = np.tile(np.arange(1500), 3)
    dirt = random.gamma(1.2, 60, n)
    warmth = 10 + 8 * np.sin(hours / 24 * 2 * np.pi) + random.normal(0, 3, n)
    readings = {"PM2.5": dirt, "PM10": dirt * random.normal(1.4, 0.25, n), "TEMP": warmth}
    readings |= {"DEWP": warmth - random.gamma(2, 4, n), "RAIN": random.gamma(0.1, 0.5, n)}
    scales = {"SO2": 15, "NO2": 50, "CO": 1200, "O3": 57, "WSPM": 2, "PRES": 1010}
    readings |= {name: random.gamma(2, scale / 2, n) for name, scale in scales.items()}
    columns = {name: pa.array(np.round(r, 1), mask=random.random(n) < 0.02) for name, r in readings.items()}
    columns["wd"] = pa.array(random.choice(["N", "NNE", "E", "SE", "S", "W"], n), mask=random.random(n) < 0.02)
    columns |= {"hour": hours % 24, "station": np.repeat(["Dongsi", "Gucheng", "Shunyi"], 1500)}
    return pa.table(columns | {"time": pa.array(hours * 3600 * 10**6, pa.timestamp("us"))})


def _drawn(random: np.random.Generator, known: dict[str, Any], rule: Rule) -> list[Any]:
    """Readings for the places of a rule; the ends of a range in order."""
    values = [random.choice(known[name]) for name in rule.drawn]
    return sorted(values) if rule.drawn[0] == rule.drawn[-1] else values


def test_rules_over_beijings_air_hold_as_pandas_says(data: Callable[[str], Path]) -> None:
    _check_rules(_beijing(data(AIR)), 2000)


def test_rules_over_generated_air_with_gaps_hold_as_pandas_says() -> None:
    _check_rules(_generated_air(), 800)


def _check_rules(air: pa.Table, n: int) -> None:
    """Rules of one station, of two or of all; thresholds lie on readings, and a gap is no answer but to IS NULL."""
    air = air.append_column("row", pa.array(np.arange(len(air))))
    rows = air.to_pandas(types_mapper={pa.float64(): pd.Float64Dtype()}.get).astype({"wd": "string"})
    known = {name: rows[name].dropna().to_numpy() for rule in RULES for name in rule.drawn}
    of_station = dict(list(rows.rename(columns=lambda c: c.lower().replace(".", "")).groupby("station")))
    random = np.random.default_rng(4)
    texts, expected = [], []
    for i in range(n):
        rule = RULES[i % len(RULES)]
        drawn = _drawn(random, known, rule)
        own = random.permutation(sorted(of_station))[: 1 + i // 8 % 2].tolist()
        where = f" AND station IN {tuple(own)}" if len(own) == 2 else f" AND station = '{own[0]}'"
        own, where = (list(of_station), "") if i % 101 == 0 else (own, where)
        texts.append(rule.text.format(*drawn) + where)
        true = [part["row"][rule.truth(part, *drawn).fillna(False)] for part in map(of_station.__getitem__, own)]
        expected.append(np.sort(np.concatenate(true)))
    stream = ap.Stream(air, key="row", time="time", value=ap.Exact("hour"))
    found = ap.match_queries(stream, pa.table({"query": np.arange(n), "condition": texts}))
    assert len(ap.rejects(found)) == 0
    query, row = found["query"].to_numpy(), found["key"].to_numpy()
    assert np.bincount(query, minlength=n).tolist() == list(map(len, expected))
    assert (row[np.lexsort((row, query))] == np.concatenate(expected)).all()
    assert (np.bincount(query % len(RULES), minlength=len(RULES)) > 100).all()


# --- joins of two streams ---------------------------------------------------------------------------------------

# Plain floats, a gap is NaN, with which nothing compares: so negations are written out.
JOINS: dict[str, Callable[[Any, Any, float], bool]] = {
    "a.temperature - b.temperature BETWEEN -{0} AND {0} AND a.pressure > b.pressure": (
        lambda a, b, x: -x <= a.temperature - b.temperature <= x and a.pressure > b.pressure
    ),
    "a.humidity IS NULL AND b.temperature >= {0} + 15": (lambda a, b, x: isnan(a.humidity) and b.temperature >= x + 15),
    "NOT (a.wind_speed <= b.wind_speed OR a.humidity < b.humidity + {0})": (
        lambda a, b, x: a.wind_speed > b.wind_speed and a.humidity >= b.humidity + x
    ),
    "a.pressure = b.pressure AND a.temperature > b.temperature + {0}": (
        lambda a, b, x: a.pressure == b.pressure and a.temperature > b.temperature + x
    ),
    "(a.humidity - b.humidity > 10 * {0} OR b.pressure IS NULL) AND a.wind_speed IN (1, 2, 3)": (
        lambda a, b, x: (a.humidity - b.humidity > 10 * x or isnan(b.pressure)) and a.wind_speed in (1, 2, 3)
    ),
}
# What is asked, and how many hours apart two rows may then be; there is a row an hour.
REACHES = {"3 HOURS": 3, "90 MINUTES": 1, "0.5 DAYS": 12, "1 ROW": 0, "4 ROWS": 3}


def _two_cities(folder: Path) -> list[pa.Table]:
    """Ten days of May 2013, when Los Angeles and San Diego both lack pressures and humidities."""
    names = ("temperature_degC", *MEASURED[1:])
    tables = [pd.read_parquet(folder / f"five_years_8_cities_{name}.parquet").set_index("datetime") for name in names]
    days = [table.loc["2013-05-06":"2013-05-15"] for table in tables]
    cities = [pd.concat([day[city] for day in days], axis=1, keys=MEASURED) for city in ("Los Angeles", "San Diego")]
    return [pa.Table.from_pandas(city.rename_axis("time").reset_index(), preserve_index=False) for city in cities]


def _generated_weather() -> list[pa.Table]:
    """Two cities whose days are alike, in whole degrees and tenths, with a gap in ten readings."""
    random, n, found = np.random.default_rng(9), 150, []
    day = 6 * np.sin(np.arange(n) / 24 * 2 * np.pi)
    for _ in range(2):
        values = (17 + day + random.normal(0, 2, n), random.normal(1013, 2, n), random.normal(60, 20, n))
        rounded = map(np.round, (*values, random.gamma(2, 1, n)), (1, 0, 0, 0))
        columns = {c: pa.array(v, mask=random.random(n) < 0.1) for c, v in zip(MEASURED, rounded, strict=True)}
        found.append(pa.table(columns | {"time": pa.array(np.arange(n) * 3600 * 10**6, pa.timestamp("us"))}))
    return found


def test_two_cities_meet_as_nested_loops_say(data: Callable[[str], Path]) -> None:
    _check_joins(_two_cities(data(WEATHER)))


def test_two_generated_cities_meet_as_nested_loops_say() -> None:
    _check_joins(_generated_weather())


def _check_joins(both: list[pa.Table]) -> None:
    """Differences, equalities and gaps of both, within hours, days and rows."""
    cities = {n: city.append_column("hour", pa.array(np.arange(len(city)))) for n, city in zip("ab", both, strict=True)}
    left, right = (list(city.to_pandas().itertuples(index=False)) for city in cities.values())
    texts: list[str] = []
    expected: list[tuple[int, int, int]] = []
    for (text, truth), (window, reach), x in product(JOINS.items(), REACHES.items(), (0.5, 1, 3)):
        near = ((a, b) for a in left for b in right if abs(a.hour - b.hour) <= reach)
        expected += [(len(texts), a.hour, b.hour) for a, b in near if truth(a, b, x)]
        texts.append(f"{text.format(x)} WITHIN {window}")
    streams = [ap.Stream(c, key="hour", time="time", value=ap.Exact("hour"), name=n) for n, c in cities.items()]
    found = ap.match_queries(*streams, queries=pa.table({"query": range(len(texts)), "condition": texts}))
    assert len(ap.rejects(found)) == 0
    told = zip(*(found[name].to_pylist() for name in ("query", "left_key", "right_key")), strict=True)
    assert sorted(told) == expected
    assert {query // (len(texts) // len(JOINS)) for query, _, _ in expected} == set(range(len(JOINS)))
