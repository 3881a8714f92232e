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
# How large each warm region is, event by event.

# %%
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
for value, some in rows[rows["value"] >= 20].groupby("value"):
    axes.step(some["time"] / 60, some["sensors"].map(len), where="post", label=f"{value:g} to {value + 1:g} degrees")
axes.set_xlabel("minutes")
axes.set_ylabel("sensors in the region")
axes.set_title("The warm region appears in the sunny corner, and grows", loc="left")
axes.legend(loc="upper left")
figure
