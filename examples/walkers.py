"""Who walks with whom: encounters of people against groups that somebody annotated.

    python examples/walkers.py [--scenes FOLDER] [--picture FILE]

Two scenes of the ETH data (Pellegrini et al. 2009), or, where these are not there, two generated ones. Two people are
compared over each 0.4 seconds that both are in view: how long they are expected to be within 1.8 m (errors of 0.5 m in
all, for where a person's middle is), where both walk and their velocities differ by at most 0.3 m/s. What adds up is
the time that they are expected to have walked together. A pair is a group from 2 seconds on, if that is 20 % of the
time they share: one setting for both scenes, found by trying some on them. The plain rule, within 1.5 m in 10 frames,
stands beside it.

How sure one can be of a pair is the logistic of that time, with the slope and offset that fit the other scene best.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.lab.style import PALETTE, QUIET, style, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUT = Path(__file__).resolve().parent.parent / "out" / "walkers" / "groups.png"
NEAR, ERROR, PLAIN = 1.8, 0.5, 1.5  # metres; PLAIN is that of the plain rule
STEP = 0.4  # seconds from frame to frame
SIMILAR, WALKS = 0.3, 0.5  # m/s: how far velocities may differ, and from when on one walks
TOGETHER, SHARE = 2.0, 0.2  # seconds, and of the time that both are in view
Pair = tuple[int, int]


def main() -> None:
    """Score both ways on both scenes, and draw how far probabilities can be trusted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenes", type=Path, default=data_at("pedestrians_eth_hotel"))
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.scenes.exists()
    if not real:
        print(f"There is no {asked.scenes}, so these are generated scenes.")
    given = [read(asked.scenes, name) if real else twin(seed) for seed, name in enumerate(("eth", "hotel"))]
    scenes = {name: scored(rows, truth) for name, (rows, truth) in zip(("eth", "hotel"), given, strict=True)}
    for name, pairs in scenes.items():
        for way in ("plain", "encounters"):
            precision, recall, f = score(pairs, pairs[way])
            print(f"{name:6} {way:10} precision {precision:.2f}  recall {recall:.2f}  F {f:.3f}")
    chances = {
        name: chance(pairs, *fitted(next(other for key, other in scenes.items() if key != name)))
        for name, pairs in scenes.items()
    }
    for name, pairs in scenes.items():
        off = np.abs(reliability(pairs, chances[name])[["said", "true"]].diff(axis=1)["true"])
        print(f"{name:6} probabilities fitted on the other scene are off by {off.mean():.2f} on average")
    draw(scenes, chances, asked.picture)
    print(f"The picture: {asked.picture}")


def read(folder: Path, scene: str) -> tuple[pd.DataFrame, set[Pair]]:
    """The positions of a scene, and the pairs that belong together."""
    rows = pd.read_parquet(folder / f"{scene}.parquet").rename(columns={"ped_id": "who", "pos_x": "x", "pos_y": "y"})
    groups = pd.read_parquet(folder / "groups.parquet")
    groups = groups[groups["scene"] == scene]
    members = [sorted(set(own["ped_id"].tolist())) for _, own in groups.groupby("group")]
    return rows[["who", "seconds", "x", "y", "v_x", "v_y"]], {pair for own in members for pair in combinations(own, 2)}


def twin(seed: int) -> tuple[pd.DataFrame, set[Pair]]:
    """People who walk up and down a street, a third of them in pairs."""
    random, parts, truth = np.random.default_rng(seed), [], set()
    for who in range(0, 240, 2):
        couple = who % 6 == 0
        begin, across = random.uniform(0.0, 600.0, 2), random.uniform(0.0, 8.0, 2)
        speed, way = random.normal(1.4, 0.2, 2), random.choice([-1.0, 1.0], 2)
        if couple:
            truth.add((who, who + 1))
            begin[1], across[1], speed[1], way[1] = begin[0], across[0] + 0.8, speed[0], way[0]
        for i in range(2):
            at = STEP * np.arange(round(20.0 / speed[i] / STEP))
            x = way[i] * (speed[i] * at - 10.0) + random.normal(0.0, 0.05, len(at))
            y = across[i] + 0.3 * np.sin(at + who) + random.normal(0.0, 0.05, len(at))
            seconds = np.round((begin[i] + at) / STEP) * STEP
            v_x, v_y = way[i] * speed[i] + 0.0 * at, 0.3 * np.cos(at + who)
            parts.append(pd.DataFrame({"who": who + i, "seconds": seconds, "x": x, "y": y, "v_x": v_x, "v_y": v_y}))
    return pd.concat(parts, ignore_index=True), truth


def scored(rows: pd.DataFrame, truth: set[Pair]) -> pd.DataFrame:
    """All pairs in view at once: seconds shared, seconds expected together, and what both ways say."""
    both = rows.merge(rows, on="seconds", suffixes=("", "_2"))
    both = both[both["who"] < both["who_2"]]
    near = np.hypot(both["x"] - both["x_2"], both["y"] - both["y_2"]) <= PLAIN
    by_pair = both.assign(near=near).groupby(["who", "who_2"])["near"]
    pairs = pd.DataFrame({"common": STEP * (by_pair.size() - 1), "plain": by_pair.sum() >= 10})
    pairs = pairs.join(together(rows)).fillna({"together": 0.0})
    pairs["encounters"] = (pairs["together"] >= TOGETHER) & (pairs["together"] >= SHARE * pairs["common"])
    return pairs.assign(true=[pair in truth for pair in pairs.index])


def together(rows: pd.DataFrame) -> pd.Series:
    """The seconds that pairs of people are expected to have walked together."""
    stream = ap.Stream(
        rows,
        key="who",
        time="seconds",
        value=ap.Gaussian("x", "y", sigma=ERROR),
        motion=ap.Straight(max_gap=1.0),
        carry=["v_x", "v_y"],
    )
    legs = ap.encounters(stream, epsilon=NEAR, probability=0.01, emit="legs", expected_seconds=True).to_pandas()
    apart = np.hypot(legs["left_v_x"] - legs["right_v_x"], legs["left_v_y"] - legs["right_v_y"])
    slower = np.minimum(np.hypot(legs["left_v_x"], legs["left_v_y"]), np.hypot(legs["right_v_x"], legs["right_v_y"]))
    legs = legs[(apart <= SIMILAR) & (slower >= WALKS)]
    names = [np.minimum(legs["left_key"], legs["right_key"]).rename("who")]
    names += [np.maximum(legs["left_key"], legs["right_key"]).rename("who_2")]
    return legs["expected_seconds"].groupby(names).sum().rename("together")


def score(pairs: pd.DataFrame, said: pd.Series) -> tuple[float, float, float]:
    """Precision, recall and F."""
    right = float((said & pairs["true"]).sum())
    precision, recall = right / max(1, said.sum()), right / max(1, pairs["true"].sum())
    return precision, recall, 2.0 * precision * recall / max(1e-9, precision + recall)


def fitted(pairs: pd.DataFrame) -> np.ndarray:
    """Offset and slope of a logistic in the logarithm of the time together, by Newton's steps."""
    x = np.column_stack([np.ones(len(pairs)), np.log(0.1 + pairs["together"])])
    found = np.zeros(2)
    for _ in range(30):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ found, -30.0, 30.0)))
        bend = (x * (p * (1.0 - p))[:, None]).T @ x + 1e-3 * np.eye(2)  # a little less steep, where all is clear
        found = found + np.linalg.solve(bend, x.T @ (pairs["true"].to_numpy() - p) - 1e-3 * found)
    return found


def chance(pairs: pd.DataFrame, offset: float, slope: float) -> pd.Series:
    """How sure it is that pairs belong together."""
    return 1.0 / (1.0 + np.exp(-(offset + slope * np.log(0.1 + pairs["together"])).clip(-30.0, 30.0)))


def reliability(pairs: pd.DataFrame, said: pd.Series) -> pd.DataFrame:
    """Pairs by what was said of them: on average, how many were right, and how many there are."""
    bins = np.digitize(said, np.linspace(0.0, 1.0, 7)[1:-1])
    table = pd.DataFrame({"said": said, "true": pairs["true"].astype(float)}).groupby(bins)
    return table.mean().assign(count=table.size())


def draw(scenes: dict[str, pd.DataFrame], chances: dict[str, pd.Series], file: Path) -> None:
    """F-scores of both ways, and a reliability diagram."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(12, 6))
        titled(
            figure,
            "Who walks with whom: better than the plain rule on both scenes",
            f"Expected time within {NEAR} m of each other, walking alike; the plain rule is {PLAIN} m in 10 frames.",
        )
        _scores(figure.add_axes((0.07, 0.12, 0.4, 0.7)), scenes)
        axes = figure.add_axes((0.57, 0.12, 0.4, 0.7))
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=":")
        for (name, pairs), colour in zip(scenes.items(), PALETTE, strict=False):
            table = reliability(pairs, chances[name])
            axes.plot(
                table["said"], table["true"], marker="o", color=colour, label=f"{name}, fitted on the other scene"
            )
            for said, true, count in table.to_numpy():
                axes.text(said, true + 0.03, f"{count:.0f}", ha="center", fontsize=8, color=colour)
        axes.set_xlabel("probability of a pair")
        axes.set_ylabel("share that is a group (number of pairs)")
        axes.legend(loc="lower right", fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


def _scores(axes: Axes, scenes: dict[str, pd.DataFrame]) -> None:
    place = np.arange(3)
    for i, (name, pairs) in enumerate(scenes.items()):
        for j, way in enumerate(("plain", "encounters")):
            values = score(pairs, pairs[way])
            at = place + 4 * i + 0.4 * j
            axes.bar(at, values, 0.38, color=PALETTE[i], alpha=0.4 + 0.6 * j, label=f"{name}, {way}")
            for x, value in zip(at, values, strict=True):
                axes.text(x, value + 0.01, f"{value:.2f}", ha="center", fontsize=8)
    axes.set_xticks([*(place + 0.2), *(place + 4.2)], ["precision", "recall", "F"] * 2, fontsize=9)
    axes.set_ylim(0, 1.2)
    axes.legend(loc="upper center", ncols=2, fontsize=9)


if __name__ == "__main__":
    main()
