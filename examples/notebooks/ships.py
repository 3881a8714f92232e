"""Ships that pass close to each other; `python -m tools.notebooks` runs and writes the notebook."""

# %% [markdown]
# # Ships: who passes whom, and how close?
#
# Ships report when they like. Compared report by report, two ships that pass each other between reports never meet.
# Here tracks are generated; `examples/ships.py` takes 84 minutes off Portsmouth.

# %%
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import appulse as ap

chance, parts = np.random.default_rng(3), []
for ship in range(24):
    at = np.cumsum(chance.uniform(20.0, 60.0, 60))
    way, knots = chance.choice([80.0, 260.0]) + chance.normal(0.0, 12.0), chance.uniform(5.0, 18.0)
    along = 0.5144 * knots * (at - at.mean())
    lat = 50.77 + chance.normal(0.0, 0.012) + np.cos(np.radians(way)) * along / 111_000
    lon = -1.1 + chance.normal(0.0, 0.02) + np.sin(np.radians(way)) * along / 70_400
    parts.append(pd.DataFrame({"ship": ship, "at": at, "lat": lat, "lon": lon}))
reports = pd.concat(parts, ignore_index=True)
print(f"{len(reports):,} reports of {reports['ship'].nunique()} ships")

# %%
stream = ap.Stream(
    reports, key="ship", time="at", value=ap.Position("lat", "lon", sigma=10), motion=ap.Straight("5 minutes")
)
met = ap.encounters(stream, epsilon=200, probability=0.9)
met.select(["left_key", "right_key", "closest_time", "closest_distance", "seconds_within", "probability"])

# %% [markdown]
# The same, report by report within ten seconds: some encounters are missed.

# %%
still = ap.Stream(reports, key="ship", time="at", value=ap.Position("lat", "lon", sigma=10))
pairs = ap.self_join(still, epsilon=200, probability=0.9, window="10 seconds", different="ship").to_pandas()
seen = len({frozenset(pair) for pair in zip(pairs["left_key"], pairs["right_key"], strict=True)})
print(f"{met.num_rows} encounters between reports; {seen} of these pairs of ships are seen by reports alone")

# %%
figure = Figure(figsize=(7, 3.6), layout="constrained")
axes = figure.subplots()
for _, track in reports.groupby("ship"):
    axes.plot(track["lon"], track["lat"], color="#6b7280", linewidth=0.6)
for one in met.to_pylist():
    track = reports[reports["ship"] == one["left_key"]]
    where = [np.interp(one["closest_time"], track["at"], track[name]) for name in ("lon", "lat")]
    axes.scatter(*where, color="#D55E00", zorder=3)
axes.set_aspect(1 / np.cos(np.radians(50.8)))
axes.set_title(f"{met.num_rows} times two ships were within 200 metres", loc="left")
figure
