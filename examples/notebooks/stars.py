"""Cross-matching stars; `python -m tools.notebooks` runs and writes the notebook."""

# %% [markdown]
# # Stars: which of the two catalogues' entries are one star?
#
# A catalogue of 1991 and one of 2016. In between stars have moved by their proper motion, which is known with an error:
# a star's place in 2016 is uncertain by some tenths of an arc second, along and across. Catalogues are generated here;
# `examples/stars.py` takes Hipparcos and Gaia.

# %%
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import appulse as ap

chance, n, years = np.random.default_rng(4), 400, 24.75
dec, ra = chance.uniform(10, 10.05, n), chance.uniform(60, 60.05, n)  # a crowded field
motion, error = chance.normal(0, 0.05, (n, 2)), chance.uniform(0.002, 0.02, n)  # arc seconds a year
old = pd.DataFrame({"star": range(n), "epoch": 0, "dec": dec, "ra": ra, "error": error * years})
moved = [dec + motion[:, 0] * years / 3600, ra + motion[:, 1] * years / 3600 / np.cos(np.radians(dec))]
noise = chance.normal(0, 1, (2, n)) * error * years / 3600
new = pd.DataFrame({"source": range(n), "epoch": 0, "dec": moved[0] + noise[0], "ra": moved[1] + noise[1]})
others = {"source": range(n, 6 * n), "epoch": 0, "dec": chance.uniform(10, 10.05, 5 * n)}
new = pd.concat([new, pd.DataFrame(others | {"ra": chance.uniform(60, 60.05, 5 * n)})], ignore_index=True)
old["dec"], old["ra"] = moved  # where each is expected in 2016

# %% [markdown]
# The nearest source is not always the star: several stars may claim one, and unrelated sources lie around. `assign`
# gives each star at most one source, by how likely it is that both are one, against a source that happens to be there:
# fewer links, and a larger share of them right.

# %%
left = ap.Stream(old, key="star", time="epoch", value=ap.Position("dec", "ra", sigma="error", earth="sky"))
right = ap.Stream(new, key="source", time="epoch", value=ap.Position("dec", "ra", sigma=0.001, earth="sky"))
links = ap.assign(left, right, epsilon=2.0, probability=0.05, window="tick")
nearest = ap.nearest(left, right, epsilon=2.0, window=1)
for name, pairs in (("nearest", nearest), ("assign", links)):
    right_ones = sum(one["left_key"] == one["right_key"] for one in pairs.to_pylist())
    print(f"{name:8} {pairs.num_rows} links, {right_ones} of them right")
links.select(["left_key", "right_key", "distance", "log_likelihood_ratio", "margin"]).slice(0, 4)

# %%
found = links.to_pandas()
sure = found["left_key"] == found["right_key"]
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
axes.hist([found.loc[sure, "margin"], found.loc[~sure, "margin"]], 30, label=["right", "wrong"], stacked=True)
axes.set_xlabel("margin: how much worse the best choice without this link is")
axes.set_ylabel("links")
axes.set_title("Wrong links have small margins", loc="left")
axes.legend(loc="upper left")
figure
