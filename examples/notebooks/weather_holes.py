"""Holes in weather data; `python -m tools.notebooks` runs and writes the notebook."""

# %% [markdown]
# # Holes in weather data
#
# Two stations report temperature and humidity, and one in five humidities is missing. Which hours had the same weather?
# Filled by the mean, a hole ignores what the temperature says. appulse fills it with a distribution, learned from past
# reports, and the join has a probability. Data is generated; `examples/weather_with_holes.py` takes airports.

# %%
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import appulse as ap

chance = np.random.default_rng(8)


def weather(n: int) -> pd.DataFrame:
    celsius = chance.uniform(5, 25, n)
    return pd.DataFrame({"celsius": celsius, "humidity": 95 - 2 * celsius + chance.normal(0, 3, n)})


past = weather(2_000)
streams = []
for name in ("north", "south"):
    rows = weather(300).assign(hour=np.arange(300), station=[f"{name} {hour}" for hour in range(300)])
    rows["truth"] = rows["humidity"]
    rows.loc[chance.random(300) < 0.2, "humidity"] = np.nan
    streams.append(rows)
print(", ".join(f"{rows['humidity'].isna().sum()} holes" for rows in streams))

# %%


def same(imputer: object) -> pd.DataFrame:
    north, south = (
        ap.Stream(
            rows, key="station", time="hour", value=ap.Incomplete("celsius", "humidity"), carry=["celsius", "truth"]
        )
        for rows in streams
    )
    return ap.similarity_join(north, south, epsilon=3.0, probability=0.5, window=1, imputer=imputer).to_pandas()


truth = {"left_celsius": "right_celsius", "left_truth": "right_truth"}
for name, imputer in {"mean": ap.MeanImputer(past), "regression": ap.RegressionImputer(past)}.items():
    pairs = same(imputer)
    really = np.hypot(*(pairs[one] - pairs[other] for one, other in truth.items())) <= 3.0
    print(f"{name:10} {len(pairs):3} pairs, of which {really.sum():3} are the same weather ({really.mean():.0%})")

# %% [markdown]
# Which rule filled what is in the answers.

# %%
filled = pairs[pairs["left_filled"].map(len) > 0]
filled[["left_key", "right_key", "probability", "left_filled"]].round(3).head(3)

# %% [markdown]
# What a hole is filled with: a mean is one number whatever the temperature, a regression is a distribution at it.

# %%
north = ap.Stream(streams[0], key="station", time="hour", value=ap.Incomplete("celsius", "humidity"))
rows = ap.impute(north, ap.RegressionImputer(past)).frame.to_pandas()
holes = rows[rows["humidity"].isna()]
figure = Figure(figsize=(7, 3.4), layout="constrained")
axes = figure.subplots()
axes.plot(rows["celsius"], rows["humidity"], ".", color="#9ca3af", label="complete reports")
for number, (_, row) in enumerate(holes.iterrows()):
    values = [sample[1] for sample in row["imputed"]]
    axes.plot([row["celsius"]] * 2, [min(values), max(values)], color="#D55E00", label="filled" if not number else None)
axes.axhline(past["humidity"].mean(), color="#0072B2", linestyle="--", label="the mean")
axes.set_xlabel("degrees Celsius")
axes.set_ylabel("humidity, %")
axes.set_title("A hole is filled with what is usual at its temperature", loc="left")
axes.legend()
figure
