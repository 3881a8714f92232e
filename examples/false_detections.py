"""Alarms that carry a confidence: cabs closer than a safe distance, by fixes that may be false.

    python examples/false_detections.py [--tracks FILE] [--worlds N] [--picture FILE]

Five cabs of San Francisco (Cabspotting, 24 days of 2008), or, where that file is not there, a generated twin. Nobody
has marked which fixes are false, so how far to trust one is made up from the track: see `trust`. The answers are held
against simulated worlds, and against what one would have got with a threshold of 0.5 on the trust in a fix.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import prepare_cabs
from data_folder import data_at
from reliability import draw_reliability, reliability
from tracks import ways

import appulse as ap

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUT = Path(__file__).resolve().parent.parent / "out" / "cabs" / "reliability.svg"
SAFE = 100.0  # metres
GPS = 15.0  # metres, the standard deviation east and north
PLACE = ap.Position("latitude", "longitude", sigma=GPS)
NEWEST = 10  # fixes of the fleet that count
CERTAIN = 0.9999  # how sure a window is to hold them
LEAST = 0.001  # the least probability of an answer
FAR = 60  # fixes between two of which so many exist, surely: none is in the window with the other
DEGREE = 110_995.0  # metres of latitude
LINE = 37.7083  # degrees north: the southern border of the city
LAST, ENOUGH = 5, 3  # of the last 5 fixes of a cab at least 3 outside


def main() -> None:
    """Say how the answers compare with the worlds, and draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at(prepare_cabs.TRACKS))
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.tracks.exists()
    source = str(asked.tracks) if real else f"a generated twin, as there is no {asked.tracks}"
    rows = trust(prepare_cabs.read(asked.tracks)) if real else twin()
    shares = ", ".join(f"{(rows['real'] < limit).mean():.2%} below {limit}" for limit in (0.9, 0.5, 0.1))
    print(f"{len(rows):,} fixes of {rows['cab'].nunique()} cabs from {source}; trust: {shares}")
    near = candidates(rows)
    found, blind, cut = alarms(rows), without_trust(rows), thresholded(rows)
    happened = worlds(rows, near, asked.worlds)
    points = {
        "with existence": reliability(*matched(found, near, happened)),
        "existence ignored": reliability(*matched(blind, near, happened)),
    }
    for name, table in points.items():
        print(f"\n{name}:\n{table.round(4).to_string(index=False)}")
    line = points["with existence"]
    off = ((line["predicted"] - line["frequency"]).abs() / line["error"]).max()
    print(f"\nWith existence, the point farthest from the diagonal is {off:.1f} standard errors off")
    answers = {
        "every fix taken as true": blind[blind["probability"] >= 0.5],
        "fixes of trust 0.5 and more taken as true": cut,
        "alarms of probability 0.5 and more": found[found["probability"] >= 0.5],
        "alarms of probability 0.8 and more": found[found["probability"] >= 0.8],
        "all alarms of probability 0.001 and more": found,
    }
    print(f"\n{judged(answers, near, happened).to_string()}")
    alone = np.sqrt((found["probability"] * (1 - found["probability"])).sum())
    print(f"\nIf alarms were independent, the standard deviation of their number would be {alone:.1f}")
    print(f"\n{by_day(rows, found, cut, near, happened)}")
    print(f"\n{outside_said(rows)}")
    print(f"\n{limits(rows, found)}")
    asked.picture.parent.mkdir(parents=True, exist_ok=True)
    draw_reliability(
        points,
        asked.picture,
        finding="Alarms come true as often as they say, if existence counts",
        what=(
            f"{len(found):,} pairs of fixes of two cabs within {SAFE:.0f} m, both among the newest {NEWEST} true\n"
            f"fixes of the fleet, against {asked.worlds:,} simulated worlds. Bars: 4 standard errors either way."
        ),
    )
    print(f"\nThe picture: {asked.picture}")


def trust(fixes: pd.DataFrame) -> pd.DataFrame:
    """The fixes with ``real``, how far to trust that one is no false one; ``x``, ``y`` are on a flat map.

    A false fix is a detour: from the fix before to this one and on to the next is longer than straight from the former
    to the latter. Per second between those two the detour is some v metres; trust is 0.95 / (1 + (v / 2)^2). Both
    numbers are chosen, not learnt, and a cab that turns loses some trust too.
    """
    rows = fixes.sort_values(["time", "cab"], ignore_index=True)
    rows["fix"] = rows.index
    rows["seconds"] = (rows["time"] - rows["time"].min()).dt.total_seconds()
    cabs = rows.groupby("cab")[["latitude", "longitude", "seconds"]]
    before, after = cabs.shift(1), cabs.shift(-1)
    legs = [(before, rows), (rows, after), (before, after)]
    long = [np.hypot(*ways(a, b).T) for a, b in legs]
    detour = np.maximum(long[0] + long[1] - long[2], 0) / (after["seconds"] - before["seconds"])
    rows["real"] = 0.95 / (1 + (detour.fillna(0) / 2) ** 2)
    return rows


def twin(days: int = 3, seed: int = 1) -> pd.DataFrame:
    """Generated cabs, of whose fixes a tenth is false: some 500 m off. ``false`` tells which."""
    chance = np.random.default_rng(seed)
    fixes = prepare_cabs.twin(days, seed)
    false = chance.random(len(fixes)) < 0.1
    fixes.loc[false, ["latitude", "longitude"]] += chance.normal(0, 0.0045, (false.sum(), 2))
    return trust(fixes.assign(false=false))


def alarms(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of fixes of two cabs closer than is safe, among the newest that exist, each with its probability."""
    fleet = ap.Stream(rows, key="fix", time="time", value=PLACE, existence="real")
    window = ap.UncertainCountWindow(NEWEST, confidence=CERTAIN)
    pairs = ap.self_join(fleet, different="cab", epsilon=SAFE, probability=LEAST, window=window)
    return pd.DataFrame(pairs.to_pandas())


def without_trust(rows: pd.DataFrame) -> pd.DataFrame:
    """The same question of one who takes every fix as true: GPS error counts, existence does not."""
    fleet = ap.Stream(rows, key="fix", time="time", value=PLACE)
    pairs = ap.self_join(fleet, different="cab", epsilon=SAFE, probability=LEAST, window=ap.CountWindow(NEWEST))
    return pd.DataFrame(pairs.to_pandas())


def thresholded(rows: pd.DataFrame) -> pd.DataFrame:
    """The same question after a threshold: fixes of trust 0.5 and more are true and where they say, others are not."""
    kept = rows[rows["real"] >= 0.5]
    fleet = ap.Stream(kept, key="fix", time="time", value=ap.Position("latitude", "longitude"))
    pairs = ap.self_join(fleet, different="cab", epsilon=SAFE, probability=1.0, window=ap.CountWindow(NEWEST))
    return pd.DataFrame(pairs.to_pandas())


def candidates(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Two rows: the earlier and the later fix of every pair that may be one in some world; found without the join."""
    cab = rows["cab"].astype("category").cat.codes.to_numpy()
    reach = SAFE + 6 * GPS * np.sqrt(2)
    found = []
    for lag in range(1, FAR + 1):
        near = np.hypot(*ways(rows[:-lag], rows[lag:]).T) <= reach
        first = np.flatnonzero(near & (cab[lag:] != cab[:-lag]))
        found.append(np.stack([first, first + lag]))
    return np.concatenate(found, axis=1)


def worlds(rows: pd.DataFrame, near: NDArray[np.int64], count: int, seed: int = 2) -> NDArray[np.bool_]:
    """Which of the candidates are pairs, in each of some simulated worlds.

    In a world a fix exists or not, and lies somewhere; the window is the newest existing fixes, whatever their number
    in the stream, once all fixes of one time are there; then it is a matter of distance.
    """
    chance = np.random.default_rng(seed)
    first, second = near
    used, places = np.unique(near, return_inverse=True)
    left, right = places.reshape(near.shape)
    way, real = ways(rows.iloc[first], rows.iloc[second]), rows["real"].to_numpy()
    times = rows["time"].to_numpy()
    tick = np.searchsorted(times, times[second], side="right")  # behind the last fix of the later one's time
    happened = np.zeros((count, near.shape[1]), bool)
    for world in happened:
        exists = chance.random(len(rows)) < real
        before = np.concatenate([[0], np.cumsum(exists)])
        newer = before[tick] - before[first + 1]
        error = chance.normal(0, GPS, (len(used), 2))
        d = way + error[right] - error[left]
        world[:] = exists[first] & exists[second] & (newer < NEWEST) & ((d**2).sum(axis=1) <= SAFE**2)
    return happened


def matched(
    pairs: pd.DataFrame, near: NDArray[np.int64], happened: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The probabilities of pairs, and in which worlds each was one."""
    return pairs["probability"].to_numpy(float), happened[:, places(pairs, near)]


def places(pairs: pd.DataFrame, near: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where pairs are among the candidates."""
    index = pd.MultiIndex.from_arrays(list(near)).get_indexer(
        pd.MultiIndex.from_frame(pairs[["left_key", "right_key"]])
    )
    if (index < 0).any():
        raise ValueError(f"{(index < 0).sum()} answers are no candidates: FAR = {FAR} is too little")
    return np.asarray(index, np.int64)


def judged(answers: dict[str, pd.DataFrame], near: NDArray[np.int64], happened: NDArray[np.bool_]) -> pd.DataFrame:
    """Of ways to answer: pairs answered, and, in the mean over the worlds, those false and those lost."""
    true = happened.sum(axis=1)
    table = []
    for name, pairs in answers.items():
        right = happened[:, places(pairs, near)].sum(axis=1).mean()
        claimed = pairs["probability"].sum() if name.startswith("all") else len(pairs)
        table.append((name, len(pairs), len(pairs) - right, true.mean() - right, claimed))
    columns = ["", "answered", "false", "lost", "says how many"]
    found = pd.DataFrame(table, columns=columns).set_index("").round(1)
    found.loc["the worlds, mean", "says how many"] = true.mean().round(1)
    found.loc["the worlds, standard deviation", "says how many"] = true.std().round(1)
    return found


def by_day(
    rows: pd.DataFrame,
    found: pd.DataFrame,
    cut: pd.DataFrame,
    near: NDArray[np.int64],
    happened: NDArray[np.bool_],
) -> str:
    """On how many days the number of pairs is one that 95 % of the worlds do not have."""
    days = rows["time"].dt.floor("D").rank(method="dense").to_numpy(int) - 1
    sums = np.stack([happened[:, days[near[1]] == day].sum(axis=1) for day in range(days.max() + 1)], axis=1)
    low, high = np.quantile(sums, (0.025, 0.975), axis=0)

    def outside(pairs: pd.DataFrame, *, weighted: bool) -> str:
        weights = pairs["probability"].to_numpy(float) if weighted else None
        says = np.bincount(days[pairs["right_key"].to_numpy(int)], weights, minlength=len(low))
        return f"{((says < low) | (says > high)).sum()} of {len(low)} days"

    return (
        f"Pairs a day, outside what 95 % of the worlds have: {outside(cut, weighted=False)} after the threshold, "
        f"{outside(found, weighted=True)} by the sum of probabilities"
    )


def limits(rows: pd.DataFrame, found: pd.DataFrame) -> str:
    """What such sparse fixes cannot show: how long the window is in time, and how many pairs are of waiting cabs."""
    seconds = rows["seconds"].to_numpy()
    span = np.median(seconds[NEWEST - 1 :] - seconds[: 1 - NEWEST])
    waits = np.hypot(*ways(rows.groupby("cab")[["latitude", "longitude"]].shift(), rows).T) < 2 * GPS
    both = waits[found["left_key"].to_numpy(int)] & waits[found["right_key"].to_numpy(int)]
    share = found["probability"][both].sum() / found["probability"].sum()
    return (
        f"{NEWEST} fixes in a row span {span:.0f} s in the median; of the pairs expected {share:.0%} are of cabs that "
        f"both moved less than {2 * GPS:.0f} m since the fix before"
    )


def outside_city(rows: pd.DataFrame) -> pd.DataFrame:
    """Per fix that may lie outside the city: the probability that at least 3 of the cab's last 5 fixes do.

    The time is the number of the fix within its cab, so that a time window is "the last 5 fixes", false ones included.
    """
    numbered = rows.assign(number=rows.groupby("cab").cumcount())
    cabs = ap.Stream(
        numbered,
        key="fix",
        time="number",
        value=ap.Gaussian("latitude", sigma=GPS / DEGREE),
        existence="real",
        partition_by="cab",
    )
    outside = ap.filter(cabs, f"latitude < {LINE}")
    window = ap.TimeWindow(LAST - 1)
    counts = ap.window_aggregate(outside, {"latitude": "count"}, window=window, distribution=True).to_pandas()
    counts["alarm"] = [
        sum(atom["probability"] for atom in atoms if atom["value"] >= ENOUGH)
        for atoms in counts["latitude_count_distribution"]
    ]
    return pd.DataFrame(counts[["cab", "time", "latitude_count", "alarm"]])


def outside_said(rows: pd.DataFrame) -> str:
    """How many such alarms there are, and how many a threshold would have reported."""
    counts = outside_city(rows)
    sure = (rows["real"] >= 0.5) & (rows["latitude"] < LINE)
    inside = sure.groupby(rows["cab"]).rolling(LAST, min_periods=1).sum().droplevel(0).sort_index()
    numbered = rows.assign(time=rows.groupby("cab").cumcount(), sure=inside)
    both = counts.merge(numbered[["cab", "time", "sure"]], on=["cab", "time"], how="left")
    reported = both["sure"] >= ENOUGH
    likely = both["alarm"] >= 0.5
    weak = (reported & (both["alarm"] < 0.9)).sum(), (reported & ~likely).sum()
    missed = (~reported & likely).sum(), (~reported & (both["alarm"] >= 0.1)).sum()
    total = both["alarm"].sum()
    lines = [
        f"At least {ENOUGH} of a cab's last {LAST} fixes outside the city, at {len(both):,} fixes that may be outside:",
        f"  reported after a threshold of 0.5 on trust: {reported.sum():,}; all probabilities sum to {total:,.1f}",
        f"  of those reported {weak[0]:,} have a probability below 0.9, {weak[1]:,} below 0.5",
        f"  not reported: {missed[0]:,} of probability 0.5 and more, {missed[1]:,} of 0.1 and more",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
