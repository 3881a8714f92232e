"""Stars of Hipparcos and Gaia, one to one: moved to one epoch by their proper motion, with the errors that this has.

    python examples/stars.py [--hipparcos FILE] [--gaia FILE] [--picture FILE]

Hipparcos measured in 1991.25, Gaia in 2016.0. In the time between a star moves by its proper motion, which is known
with an error: a star's place in 2016 is an ellipse. `ap.assign` gives each star of Hipparcos at most one of Gaia, by
how likely it is that both are one, against a star that happens to be there. Where the files are not there, a generated
twin is taken.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.lab.style import QUIET, style, titled

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUT = Path(__file__).resolve().parent.parent / "out" / "stars" / "residuals.png"
_WEIGHTS = [f"uw{i}" for i in range(1, 16)]
YEARS = 2016.0 - 1991.25
ARC_SECONDS = 3600.0  # of a degree
MAS = 1e-3  # milliarcseconds in arc seconds
NEAR = 1.0  # arc seconds
GAIA_ERROR = 0.001  # arc seconds: far above that of bright stars, far below that of Hipparcos after 25 years


def main() -> None:
    """Match the catalogues with and without motion, by distance and by likelihood."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hipparcos", type=Path, default=data_at("sky/hipparcos.parquet"))
    parser.add_argument("--gaia", type=Path, default=data_at("sky/gaia.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.hipparcos.exists() and asked.gaia.exists()
    stars, gaia = read(asked.hipparcos, asked.gaia) if real else twin()
    print(f"{len(stars):,} stars of Hipparcos, {len(gaia):,} of Gaia" + ("" if real else ", both generated"))

    exact = ap.Position("dec", "ra", earth="sky")
    right = ap.Stream(gaia, key="gaia", time="epoch", value=ap.Position("dec", "ra", sigma=GAIA_ERROR, earth="sky"))
    still = ap.Stream(
        stars.drop(columns=["dec", "ra"]).rename(columns={"dec_1991": "dec", "ra_1991": "ra"}),
        key="hip",
        time="epoch",
        value=exact,
    )
    moved = ap.Stream(stars, key="hip", time="epoch", value=exact)
    for what, left in (("where they were in 1991", still), ("where they are in 2016", moved)):
        pairs = ap.nearest(left, ap.Stream(gaia, key="gaia", time="epoch", value=exact), epsilon=NEAR, window=1)
        said(f"{what}, the nearest within {NEAR:g} arc second", len(pairs), len(stars))
    near = pairs.to_pandas()

    ellipse = ap.Position("dec", "ra", ellipse=("major", "minor", "angle"), earth="sky")
    left = ap.Stream(stars, key="hip", time="epoch", value=ellipse, carry=["major"])
    density = len(gaia) / (4.0 * np.pi * (180.0 / np.pi * ARC_SECONDS) ** 2)
    one = ap.assign(left, right, epsilon=5.0 * NEAR, probability=0.01, window="tick", density=density).to_pandas()
    said("one to one by likelihood", len(one), len(stars))
    report(one, near, stars)
    draw(one, asked.picture)
    print(f"The picture: {asked.picture}")


def report(one: pd.DataFrame, near: pd.DataFrame, stars: pd.DataFrame) -> None:
    """What likelihood adds to a fixed radius, and what it refuses."""
    beyond = one[one["distance"] > NEAR]
    print(f"  added: {len(beyond):,} farther apart than {NEAR:g} arc second, whose error is {_median(beyond)} (median)")
    print(f"  in doubt: {(one['margin'] < np.log(100.0)).sum():,} with a margin below log 100")
    refused = near[~near["left_key"].isin(one["left_key"])]
    several = [stars.set_index("hip")["components"][rows["left_key"]].gt(1).mean() for rows in (refused, one)]
    if len(refused) == 0:
        print("  refused: none within it")
        return
    print(
        f"  refused: {len(refused):,} within it, {refused['distance'].median():.2f} arc seconds apart (median); "
        f"{several[0]:.0%} of them are double or multiple stars, of those matched {several[1]:.0%}"
    )


def _median(rows: pd.DataFrame) -> str:
    return f"{rows['left_major'].median():.2f}" if len(rows) else "nothing"


def said(what: str, found: int, of: int) -> None:
    """A line about a way to match."""
    print(f"{what}: {found:,} ({found / of:.1%})")


def read(hipparcos: Path, gaia: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both catalogues: Hipparcos moved to 2016 with an ellipse of its error, and Gaia."""
    raw = pd.read_parquet(hipparcos)
    ra, dec = np.degrees(raw["ra_rad"].to_numpy()), np.degrees(raw["de_rad"].to_numpy())
    motion = raw[["pm_ra", "pm_de"]].to_numpy() * MAS
    stars = pd.DataFrame({"hip": raw["hip"], "components": raw["nc"], "ra_1991": ra, "dec_1991": dec})
    there = pd.read_parquet(gaia, columns=["source_id", "ra", "dec", "mag"]).rename(columns={"source_id": "gaia"})
    # Rows with a number below 0 are stars of Hipparcos, moved by the makers of the file.
    there = there[there["gaia"] >= 0].assign(epoch=2016.0)
    return placed(stars, motion, covariances(raw)), there


def covariances(raw: pd.DataFrame) -> NDArray[np.float64]:
    """Of right ascension, declination and their proper motions (n, 4, 4), from the weights of the catalogue."""
    stated = raw[["e_ra_rad", "e_de_rad", "e_plx", "e_pm_ra", "e_pm_de"]].to_numpy()
    whole = stated[:, :, None] * stated[:, None, :] * np.eye(5)
    # The recipe is that of solutions with five parameters; others have the errors as they are stated.
    five = ((raw["sn"] % 10 == 5) & (raw["ntr"] > 5)).to_numpy()
    n, errors, weights = raw["ntr"].to_numpy()[five] - 5.0, stated[five], raw[_WEIGHTS].to_numpy()[five]
    u = np.sqrt((raw["f2"].to_numpy()[five] * np.sqrt(2.0 / (9.0 * n)) + 1.0 - 2.0 / (9.0 * n)) ** 3)
    root, at = np.zeros((len(n), 5, 5)), 0
    for j in range(5):
        for i in range(j + 1):
            root[:, i, j] = weights[:, at] / (errors[:, i] if i == j else u)
            at += 1
    inverse = np.linalg.inv(root)
    whole[five] = inverse @ inverse.transpose(0, 2, 1)
    return np.ascontiguousarray(whole[:, [0, 1, 3, 4]][:, :, [0, 1, 3, 4]]) * MAS**2


def placed(stars: pd.DataFrame, motion: NDArray[np.float64], covariance: NDArray[np.float64]) -> pd.DataFrame:
    """The stars in 2016, along great circles, with the ellipse that motion and its error make."""
    ra, dec = np.radians(stars["ra_1991"].to_numpy()), np.radians(stars["dec_1991"].to_numpy())
    east = np.column_stack([-np.sin(ra), np.cos(ra), np.zeros(len(ra))])
    north = np.column_stack([-np.sin(dec) * np.cos(ra), -np.sin(dec) * np.sin(ra), np.cos(dec)])
    here = np.column_stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])
    step = np.radians(motion / ARC_SECONDS) * YEARS
    there = here + step[:, :1] * east + step[:, 1:] * north
    there /= np.linalg.norm(there, axis=1, keepdims=True)
    onward = np.concatenate([np.eye(2), YEARS * np.eye(2)], axis=1)
    flat = onward @ covariance @ onward.T
    values, axes = np.linalg.eigh(flat)
    major, minor = np.sqrt(values[:, 1]), np.sqrt(values[:, 0])
    angle = np.degrees(np.arctan2(axes[:, 0, 1], axes[:, 1, 1]))  # from north to east
    return stars.assign(
        ra=np.degrees(np.arctan2(there[:, 1], there[:, 0])) % 360.0,
        dec=np.degrees(np.arcsin(there[:, 2])),
        major=major,
        minor=minor,
        angle=angle,
        epoch=2016.0,
    )


def twin(n: int = 4000, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Generated stars with motion, of which Gaia has nine in ten, among as many that Hipparcos does not have."""
    chance = np.random.default_rng(seed)
    ra, dec = chance.uniform(0.0, 360.0, 2 * n), np.degrees(np.arcsin(chance.uniform(-1.0, 1.0, 2 * n)))
    motion = chance.normal(0.0, 0.05, (2 * n, 2))
    errors = chance.uniform(0.0005, 0.002, (2 * n, 4))
    covariance = errors[:, :, None] * errors[:, None, :] * np.eye(4)
    stars = pd.DataFrame({"hip": range(2 * n), "components": 1, "ra_1991": ra, "dec_1991": dec})
    placed_ = placed(stars, motion, covariance)
    shift = chance.normal(size=(2 * n, 2)) * placed_[["major", "minor"]].to_numpy() / ARC_SECONDS
    angle = np.radians(placed_["angle"].to_numpy())
    north = shift[:, 0] * np.cos(angle) - shift[:, 1] * np.sin(angle)
    east = shift[:, 0] * np.sin(angle) + shift[:, 1] * np.cos(angle)
    gaia = pd.DataFrame(
        {
            "gaia": np.arange(2 * n) + 10**6,
            "ra": placed_["ra"] + east / np.cos(np.radians(placed_["dec"])),
            "dec": (placed_["dec"] + north).clip(-90.0, 90.0),
            "mag": 8.0,
            "epoch": 2016.0,
        }
    )
    return placed_.head(n), gaia[(np.arange(2 * n) >= n) | (chance.random(2 * n) < 0.9)]


def draw(one: pd.DataFrame, file: Path) -> None:
    """How far the two stars of each pair are apart, in deviations, and what the pair is worth."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(8.0, 5.0))
        titled(figure, "One star, two catalogues", "Each dot is a pair; above 0 it is rather one star than two.")
        axes = figure.add_axes((0.1, 0.12, 0.86, 0.72))
        axes.scatter(one["distance"].clip(lower=1e-4), one["log_likelihood_ratio"], s=2, lw=0, color=QUIET, alpha=0.4)
        axes.set_xscale("log")
        axes.set_xlabel("arc seconds between the two")
        axes.set_ylabel("log likelihood ratio")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


if __name__ == "__main__":
    main()
