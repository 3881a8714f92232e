"""Aircraft below the least separation; `python -m tools.notebooks` runs and writes the notebook."""

# %% [markdown]
# # Aircraft: which alarms are sure?
#
# Aircraft must keep 5 nautical miles or 1,000 feet apart. They report altitudes in steps of 25 feet, and fly 1,000 feet
# above each other, so a plain alarm rings for pairs that keep their distance. Here reports are generated;
# `examples/aircraft.py` takes a day above Switzerland.

# %%
import pandas as pd
from matplotlib.figure import Figure

import appulse as ap
from appulse.cli.demos.aircraft import twin

MILE, FOOT = 1852.0, 0.3048
reports = twin()
print(f"{len(reports):,} reports of {reports['aircraft'].nunique()} aircraft")
reports.head(2)

# %% [markdown]
# Reports come at times of their own. `motion=` has an aircraft move straight between two of them, and `encounters`
# finds the moment at which two are closest. `epsilon` is a cylinder: both distances have to hold at once.

# %%


def alarms(probability: float, **errors: float) -> pd.DataFrame:
    position = ap.Position("lat", "lon", altitude="up", **errors)
    stream = ap.Stream(reports, key="aircraft", time="at", value=position, motion=ap.Straight(max_gap="1 minute"))
    near = {"horizontal": 5 * MILE, "vertical": 1000 * FOOT - 1}
    return ap.encounters(stream, epsilon=near, probability=probability, gap="1 minute").to_pandas()


def pairs(found: pd.DataFrame) -> int:
    return len(found[["left_key", "right_key"]].drop_duplicates())


plain = alarms(1.0)
likely = alarms(0.5, sigma=50.0, altitude_sigma=15.0)
columns = ["left_key", "right_key", "closest_distance", "seconds_within", "probability"]
likely.sort_values("probability").iloc[[0, len(likely) // 2, -1]][columns].round(3)

# %% [markdown]
# With the errors in the model a threshold says how sure an alarm has to be.

# %%
steps = [0.5, 0.7, 0.9, 0.99, 0.999]
counts = [pairs(likely[likely["probability"] >= step]) for step in steps]
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
axes.bar(["plain", *map(str, steps)], [pairs(plain), *counts], color=["#0072B2"] + ["#D55E00"] * len(steps))
axes.set_xlabel("how sure an alarm has to be")
axes.set_ylabel("pairs of aircraft")
axes.set_title(f"Of {pairs(plain)} pairs with a plain alarm, {counts[3]} are 99 % sure", loc="left")
figure
