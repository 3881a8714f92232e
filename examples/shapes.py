"""Days of the stock market like today: the nearest in history by the shape of the last 20 returns, as a stream.

    python examples/shapes.py [--prices FILE]

Every day has a vector: the mean returns of all shares over 20 days. Two are similar by the angle between them, whatever
their size. Each day asks for the three days most like it among those whose 20 days were over before its own began. Then
it is seen whether what followed is similar, too. Where the file is not there, generated prices are taken.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from data_folder import data_at

import appulse as ap

PRICES = "sp500_5yr/all_stocks_5yr.parquet"  # of the data
DAYS, K = 20, 3
APART = 0.5  # 1 - cosine: what differs more is not similar


def main() -> None:
    """Stream the days by months, show those most similar, and whether what followed was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prices", type=Path, default=data_at(PRICES))
    asked = parser.parse_args()
    real = asked.prices.exists()
    returns = read(asked.prices) if real else twin()
    print(f"{len(returns):,} days of returns" + ("" if real else ", generated"))
    days = shapes(returns)
    found = similar(days)
    print(f"{found['left_key'].nunique():,} days have one like them, of {len(days):,}; most similar:")
    best = found[found["rank"] == 1].nsmallest(5, "distance")
    for row in best.itertuples():
        print(f"  {row.left_time:%d %B %Y} and {row.right_before:%d %B %Y}: cosine {1.0 - row.distance:.2f}")
    after = followed(days, found)
    stretches = max(1, len(after) // DAYS)  # that do not overlap
    print(
        f"the {DAYS} days that followed: correlation {after.corr().iloc[0, 1]:.2f} between what came after a day and, "
        f"in the mean, after those like it; by chance it would be within {2.0 / np.sqrt(stretches):.2f} of 0"
    )


def shapes(returns: pd.Series) -> pd.DataFrame:
    """Each day's vector; when it counts as history: the first day none of whose returns are its own."""
    vectors = np.lib.stride_tricks.sliding_window_view(returns.to_numpy(), DAYS)
    days = pd.DataFrame({"day": np.arange(len(vectors)), "date": returns.index[DAYS - 1 :], "shape": list(vectors)})
    days["before"], days["history"] = days["date"], days["date"].shift(-DAYS)
    after = returns.rolling(DAYS).sum().shift(-DAYS)
    return days.assign(after=after.to_numpy()[DAYS - 1 :])


def similar(days: pd.DataFrame) -> pd.DataFrame:
    """The days most like each in its history, as they would have been known at the end of each month."""
    shape = ap.Exact("shape")
    now = ap.Stream(None, key="day", time="date", value=shape, name="now")
    history = ap.Stream(None, key="day", time="history", value=shape, carry=["before"], name="history")
    window = ap.TimeWindow("3650 days", per_stream={"now": 0})
    search = ap.Nearest(now, history, k=K, epsilon=APART, window=window, metric="cosine")
    table, month_of = pa.Table.from_pandas(days, preserve_index=False), {}
    for column in ("date", "history"):
        month_of[column] = days[column].dt.strftime("%Y-%m").to_numpy()
    parts = []
    for month in pd.unique(month_of["date"]):
        today, over = (table.filter(pa.array(month_of[column] == month)) for column in ("date", "history"))
        parts.append(search.push(now=today, history=over))
    parts.append(search.drain())
    return pd.concat([part.to_pandas() for part in parts], ignore_index=True)


def followed(days: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """What followed each day, and in the mean what followed those like it, where both are known by now."""
    after = days.set_index("day")["after"]
    like = found.assign(after=after.loc[found["right_key"]].to_numpy()).groupby("left_key")["after"].mean()
    return pd.DataFrame({"own": after.loc[like.index], "like": like}).dropna()


def read(file: Path) -> pd.Series:
    """The mean logarithmic return of all shares that there are on every day."""
    rows = pd.read_parquet(file, columns=["date", "Name", "close"])
    prices = rows.pivot(index="date", columns="Name", values="close")
    prices.index = pd.to_datetime(prices.index, utc=True)
    whole = prices.loc[:, prices.notna().all()]
    return np.log(whole).diff().mean(axis=1).dropna()


def twin(days: int = 400, seed: int = 0) -> pd.Series:
    """Returns without a memory, but for 20 days in the last month that repeat others, at three times the size."""
    chance = np.random.default_rng(seed)
    returns = chance.normal(0.0, 0.01, days)
    returns[-DAYS - 5 : -5] = 3.0 * returns[100 : 100 + DAYS] + chance.normal(0.0, 0.002, DAYS)
    return pd.Series(returns, index=pd.date_range("2020-01-01", periods=days, tz="UTC"))


if __name__ == "__main__":
    main()
