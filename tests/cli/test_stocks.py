"""Days of stocks that behave alike, as in `examples/stocks.toml`: balls in four dimensions, numbers as times."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import appulse as ap
from appulse import jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")


def _check(spark: SparkSession, prices: pd.DataFrame, epsilon: float) -> pd.DataFrame:
    """Spark batch as in process, rejects too; how often each two stocks were alike."""
    rows = import_module("prepare_stocks").changes(prices)
    table = jobs.load(ROOT / "examples" / "stocks.toml").table
    assert table.self_join is not None
    question: dict[str, Any] = {
        "different": table.self_join.different,
        "epsilon": epsilon,
        "probability": table.join.probability,
        "window": table.join.window.build(),
    }
    source = table.sources["changes"]
    expected = ap.self_join(source.stream(rows, None), **question)
    frame = spark.createDataFrame(rows.drop(columns="date"))
    found = ap.self_join(source.stream(frame, None), **question, options=ap.Options(partitions=3))
    pd.testing.assert_frame_equal(_in_order(found.toPandas()), _in_order(expected.to_pandas()), check_dtype=False)
    refused = [_in_order(told) for told in (ap.rejects(found).toPandas(), ap.rejects(expected).to_pandas())]
    assert list(refused[0]["key"]) == list(refused[1]["key"])
    alike = expected.to_pandas()
    assert (alike["right_time"] - alike["left_time"]).between(0, 4).all()
    ranked: pd.DataFrame = import_module("rank_stocks").ranked(alike)
    assert (ranked["first"] < ranked["second"]).all()
    return ranked.sort_values("on the same day", ascending=False, ignore_index=True)


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    keys = [name for name in table.columns if name.endswith("key")]
    return table.sort_values(keys, ignore_index=True)


def test_google_is_most_like_google(data: Callable[[str], Path], spark: SparkSession) -> None:
    """Six weeks of 2015 and some fifty stocks: the two classes of shares in one company come out on top."""
    prices = pd.read_parquet(data(import_module("prepare_stocks").PRICES))
    names = {"GOOG", "GOOGL", *prices["Name"].unique()[::10]}
    days = prices["date"].astype(str).between("2015-06-15", "2015-07-31")
    ranked = _check(spark, prices[days & prices["Name"].isin(names)], 0.5)
    assert len(names) >= 50
    assert len(ranked) > 500
    assert (ranked["first"][0], ranked["second"][0]) == ("GOOG", "GOOGL")


def test_a_generated_company_is_most_like_itself(spark: SparkSession) -> None:
    """Twelve sectors: the twelve companies with two classes of shares come first."""
    ranked = _check(spark, import_module("prepare_stocks").twin(days=20, stocks=4), 0.4)
    assert len(ranked) > 100
    assert {(a, b) for a, b in zip(ranked["first"][:12], ranked["second"][:12], strict=True)} == {
        (f"{sector}0", f"{sector}0.B") for sector in "ABCDEFGHIJKL"
    }


def test_a_copied_day_is_left_out_and_the_next_has_no_day_before() -> None:
    """What the file of real prices has on 4 August 2014."""
    changes = import_module("prepare_stocks").changes
    prices = pd.DataFrame({"date": pd.bdate_range("2014-08-01", periods=4), "Name": "XL"})
    for i, name in enumerate(("open", "high", "low", "close")):
        prices[name] = [10.0 + i, 10.0 + i, 11.0 + i, 12.0 + i]
    other = prices.assign(Name="HIG", open=[1.0, 2.0, 3.0, 4.0])
    rows = changes(pd.concat([prices, other])).set_index("key")
    assert list(rows.loc[rows["Name"] == "XL"].index) == ["XL 2014-08-05", "XL 2014-08-06"]
    assert rows.loc["XL 2014-08-05", "open":"close"].isna().all()
    assert rows.loc["XL 2014-08-06", "open"] == pytest.approx(100 / 11)
    assert list(rows.loc[rows["Name"] == "HIG", "day"]) == [2, 3, 4]
