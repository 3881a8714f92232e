"""Fences that do not flicker; `python -m tools.notebooks` runs and writes the notebook."""

# %% [markdown]
# # Fences that do not flicker
#
# A van drives along the edge of a yard, by fixes that are off by some ten metres. Reports taken at their word cross the
# edge again and again. `fence_events` enters when it is sure, and leaves when it is sure.

# %%
import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure

import appulse as ap

chance = np.random.default_rng(5)
t = np.arange(0, 600, 5.0)
x = np.interp(t, [0, 100, 200, 400, 500, 600], [-80, 6, 60, 60, -4, -90])  # metres east of the edge
fixes = pd.DataFrame({"van": "a", "t": t, "x": x + chance.normal(0, 10, len(t)), "y": 50.0})
yard = pa.table({"query": ["yard"], "region": ["POLYGON ((0 0, 200 0, 200 100, 0 100, 0 0))"]})

inside = fixes["x"] >= 0
print(f"by plain fixes the van crosses the edge {int((inside != inside.shift()).sum()) - 1} times")

# %%
stream = ap.Stream(fixes, key="van", time="t", value=ap.Gaussian("x", "y", sigma=10))
events = ap.fence_events(stream, yard, enter=0.95, leave=0.05, dwell="2 minutes")
events

# %% [markdown]
# `fence_advice` says which thresholds are worth it, from the fixes and their errors alone.

# %%
advice = ap.fence_advice(stream, yard, enter=(0.5, 0.9, 0.95), leave=(0.5, 0.05))
advice.select(["enter", "leave", "true_events", "false_events", "missed_events", "delay"])

# %%
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
axes.axhspan(0, 100, color="#009E73", alpha=0.1)
axes.plot(fixes["t"], fixes["x"], ".", color="#6b7280")
for event in events.to_pylist():
    axes.axvline(event["time"], color="#D55E00")
    axes.text(event["time"] + 4, 90, event["event"])
axes.set_xlabel("seconds")
axes.set_ylabel("metres inside")
axes.set_title("One visit, whatever the fixes say at the edge", loc="left")
figure
