#!/usr/bin/env python3
"""Two routers tell of their traffic, and one size got lost: Example 1.1 of Ren et al. 2019.

    python examples/routers.py

Of each router the connections (thousands), their duration (minutes) and what was transferred (gigabytes), at three
times. Which observations of the two are similar? The missing size is filled from a log of earlier traffic, in which the
size follows from the other two.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import appulse as ap

# Table 1 of the paper; its columns of routers and times are lost, and are ours.
FIRST = pd.DataFrame(
    {"at": [1, 2, 3], "connections": [0.1, 0.2, 0.4], "duration": [0.1, 0.1, 0.3], "gigabytes": [0.1, 0.2, None]}
)
SECOND = pd.DataFrame(
    {"at": [1, 2, 3], "connections": [0.2, 0.2, 0.3], "duration": [0.1, 0.2, 0.3], "gigabytes": [0.1, 0.2, 0.2]}
)
VALUE = ap.Incomplete("connections", "duration", "gigabytes")


def log(rows: int = 500) -> pd.DataFrame:
    """Earlier traffic, complete: who has more connections, and for longer, transfers more, in steps of 0.05."""
    chance = np.random.default_rng(11)
    connections, duration = chance.uniform(0.0, 0.6, (2, rows)).round(2)
    size = 0.3 * connections + 0.4 * duration + chance.normal(0.0, 0.03, rows)
    return pd.DataFrame({"connections": connections, "duration": duration, "gigabytes": (size * 20).round() / 20})


def rules() -> list[ap.DifferentialDependency]:
    """What differs little in connections, or duration, or both, differs little in size: nineteen times in twenty."""
    return [
        ap.DifferentialDependency({"connections": 0.05, "duration": 0.05}, "gigabytes", 0.1, confidence=0.95),
        ap.DifferentialDependency({"duration": 0.1}, "gigabytes", 0.25, confidence=0.95),
    ]


def similar(epsilon: float = 0.2, probability: float = 0.3) -> pd.DataFrame:
    """Pairs of observations, of the last three of each router, that are similar."""
    routers = [ap.Stream(frame, key="at", time="at", value=VALUE) for frame in (FIRST, SECOND)]
    pairs = ap.similarity_join(
        *routers,
        epsilon=epsilon,
        probability=probability,
        window=ap.CountWindow(3),
        imputer=ap.DependencyImputer(log(), rules()),
    )
    found: pd.DataFrame = pairs.to_pandas().sort_values(["left_key", "right_key"], ignore_index=True)
    return found


def main() -> None:
    """Print what may stand in the hole, and which are similar."""
    imputer = ap.DependencyImputer(log(), rules())
    filled = ap.impute(ap.Stream(FIRST, key="at", time="at", value=VALUE), imputer).frame.to_pylist()[2]
    for sample, weight in zip(filled["imputed"], filled["imputed_weights"], strict=True):
        print(f"{sample[2]:.2f} GB with probability {weight:.2f}")
    print(f"by {filled['filled'][0]['rule']}")
    pairs = similar()
    pairs["filled"] = [", ".join(one["attribute"] for one in row) for row in pairs["left_filled"]]
    print(pairs[["left_key", "right_key", "distance", "probability", "filled"]].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
