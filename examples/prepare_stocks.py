"""Turn daily prices of the S&P 500 into one stream: a Parquet file per thirty days, a row per stock and day.

    python examples/prepare_stocks.py [--prices FILE] [--out FOLDER]

A row has the changes of open, high, low and close to the trading day before, in per cent, and how far to trust them.
Each of the four is the price of one trade; another trade minutes away would have told another. A random walk that
spans some range in a day strays about a sixteenth of it in four minutes, and a change is of two such prices: so the
radius is a tenth of the day's range.

The prices are those of five years (505 stocks, 2013 to 2018), or, where that file is not there, a generated twin:
companies of twelve sectors that go with their market and sector, the first of each sector with two classes of shares.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from data_folder import data_at
from tracks import stretches, write_stream

ROOT = Path(__file__).resolve().parent.parent
PRICES = "sp500_5yr/all_stocks_5yr.parquet"  # of the data
FOUR = ["open", "high", "low", "close"]
RADIUS = 0.1  # of the day's range


def main() -> None:
    """Write the stream and say where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prices", type=Path, default=data_at(PRICES))
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "stocks" / "input")
    asked = parser.parse_args()
    if asked.prices.exists():
        prices, source = pd.read_parquet(asked.prices), str(asked.prices)
    else:
        prices, source = twin(), f"a generated twin, as there is no {asked.prices}"
    rows = changes(prices)
    write_stream(rows, asked.out, stretches(rows["date"], every="30D"), by="date")
    print(f"{len(rows):,} days of {rows['Name'].nunique()} stocks from {source} are in {asked.out}")


def changes(prices: pd.DataFrame) -> pd.DataFrame:
    """The changes of each stock and trading day, in order of days; missing where a price is, or the day before.

    A day with the four prices of the day before is a copy of it, and left out: on 4 August 2014 the file has 214.
    """
    rows = prices.sort_values(["Name", "date"], ignore_index=True)
    rows["date"] = pd.to_datetime(rows["date"])
    rows["day"] = rows["date"].rank(method="dense").astype(int)  # trading days from 1 on
    rows["radius"] = RADIUS * 100 * (rows["high"] - rows["low"]) / rows["close"]
    rows = rows[~(rows[FOUR] == rows.groupby("Name")[FOUR].shift()).all(axis=1)].copy()
    days = rows.groupby("Name")["day"].diff()
    before = rows.groupby("Name")[FOUR].shift()
    rows[FOUR] = (100 * (rows[FOUR] / before - 1)).where(days == 1)
    rows.insert(0, "key", rows["Name"] + rows["date"].dt.strftime(" %Y-%m-%d"))
    rows = rows[days.notna()]  # a stock's first day has nothing before it
    return rows[["key", "Name", "date", "day", *FOUR, "radius"]].sort_values(["day", "Name"], ignore_index=True)


def twin(days: int = 250, stocks: int = 8, seed: int = 1) -> pd.DataFrame:
    """Prices of twelve sectors; `A0` and `A0.B` are two classes of shares in one company, and so on."""
    chance = np.random.default_rng(seed)
    dates = pd.bdate_range("2017-01-02", periods=days)
    steps = 26  # a quarter of an hour each
    market = chance.normal(0, 0.5, (days, steps))
    tables = []
    for sector in "ABCDEFGHIJKL":
        shared = market + chance.normal(0, 0.4, (days, steps))
        for i in range(stocks):
            moves = shared + chance.normal(0, 0.6, (days, steps))
            walk = np.cumsum(moves.ravel() / np.sqrt(steps) / 100) + np.log(50)
            for stock in [f"{sector}0", f"{sector}0.B"] if i == 0 else [f"{sector}{i}"]:
                noise = chance.normal(0, 2e-4, walk.shape) if stock.endswith(".B") else 0.0
                price = np.exp(walk + noise).reshape(days, steps)
                four = {"open": price[:, 0], "high": price.max(1), "low": price.min(1), "close": price[:, -1]}
                tables.append(pd.DataFrame({"date": dates, **four, "Name": stock}))
    return pd.concat(tables, ignore_index=True)


if __name__ == "__main__":
    main()
