"""A field of sensors that warms up; `python -m tools.notebooks` runs and writes the notebook."""

# %% [markdown]
# # A sensor field: where is it warm, and since when?
#
# Forty sensors in a hall; the sun comes in from the south-east. A *phenomenon* is a connected region of sensors that
# hold a value. It appears, grows, and may dissolve. Readings are generated; `examples/lab_sunrise.py` takes two days of
# a laboratory.

# %%
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import appulse as ap

chance = np.random.default_rng(2)
place = pd.DataFrame({"mote": range(40), "x": np.tile(np.arange(8), 5) * 5.0, "y": np.repeat(np.arange(5), 8) * 5.0})
parts = []
for minute in range(0, 120, 4):
    front = 45 - 0.5 * minute  # metres from the south-eastern corner
    away = np.hypot(35 - place["x"], place["y"])
    warm = 19.2 + 2.5 / (1 + np.exp((away - 45 + front) / 2)) + chance.normal(0, 0.05, len(place))
    parts.append(pd.DataFrame({"mote": place["mote"], "t": 60.0 * minute + place["mote"] / 100, "celsius": warm}))
readings = pd.concat(parts, ignore_index=True)

# %%
stream = ap.Stream(readings, key="mote", time="t", value="celsius")
events = ap.phenomena(stream, resolution=1.0, strength=2, span="10 minutes", min_sensors=3, locations=place, reach=7.1)
rows = events.to_pandas()
print(rows.groupby(["value", "event"]).size().unstack(fill_value=0))

# %% [markdown]
# Three moments: what the sensors read, and around which the region of 21 to 22 degrees is then.

# %%
warm = rows[rows["value"] == 21]
figure = Figure(figsize=(7, 2.4), layout="constrained")
drawn = figure.subplots(1, 3, sharey=True)
for axes, minute in zip(drawn, (32, 56, 80), strict=True):
    latest = readings[readings["t"] < 60 * minute + 60].groupby("mote")["celsius"].last()
    colours = axes.scatter(place["x"], place["y"], c=latest, cmap="inferno", vmin=19, vmax=22, s=30)
    region = place[place["mote"].isin(warm[warm["time"] < 60 * minute + 60].iloc[-1]["sensors"])]
    axes.scatter(region["x"], region["y"], s=110, facecolors="none", edgecolors="#0072B2")
    axes.set_title(f"minute {minute}: {len(region)} sensors", loc="left", fontsize=10)
    axes.set(aspect="equal", ylim=(-2.5, 22.5), xlabel="metres")
figure.colorbar(colours, ax=drawn, label="degrees", shrink=0.7)
figure.suptitle("The warm region appears in the sunny corner, and grows", x=0.01, ha="left")
figure
