"""Variable stars and Gaia: who is who by place alone, and how often a star is there by chance.

    python examples/variables.py [--gcvs FILE] [--gaia FILE]

The General Catalogue of Variable Stars has neither errors nor magnitudes, Gaia's bright stars have colours. So the
nearest star within two arc seconds is taken, and two things say whether that is right: how many there would be by
chance, by places moved north by a tenth of a degree, and whether colours fit the kinds. Where the files are not there,
generated ones are taken.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap

NEAR = 2.0  # arc seconds
MOVED = 0.1  # degrees
KINDS = {"M": "Mira stars, cool giants", "SRB": "semiregular giants", "EA": "eclipsing pairs", "RRAB": "RR Lyrae stars"}


def main() -> None:
    """Match the catalogues, and say how far the matches can be trusted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gcvs", type=Path, default=data_at("sky/gcvs.parquet"))
    parser.add_argument("--gaia", type=Path, default=data_at("sky/gaia.parquet"))
    asked = parser.parse_args()
    real = asked.gcvs.exists() and asked.gaia.exists()
    variables, gaia = read(asked.gcvs, asked.gaia) if real else twin()
    print(f"{len(variables):,} variable stars, {len(gaia):,} of Gaia" + ("" if real else ", both generated"))
    found = matched(variables, gaia)
    print(
        f"the nearest within {NEAR:g} arc seconds: {len(found):,}, in the median {found['distance'].median():.2f} away"
    )
    print(f"a star of Gaia is that of two variables: {found['right_key'].duplicated().sum()}")
    dec = variables["dec"] + np.where(variables["dec"] > 0.0, -MOVED, MOVED)
    print(f"by chance, at places {MOVED:g} degrees away: {len(matched(variables.assign(dec=dec), gaia)):,}")
    for kind, what in KINDS.items():
        own = found[found["left_kind"] == kind]
        share = len(own) / max(1, (variables["kind"] == kind).sum())
        print(f"  {kind:4} {what:24} {len(own):5,} ({share:.0%}), colour BP - RP {own['right_colour'].median():.2f}")


def matched(variables: pd.DataFrame, gaia: pd.DataFrame) -> pd.DataFrame:
    """The nearest star of Gaia for each variable that has one."""
    place: Any = ap.Position("dec", "ra", earth="sky")
    left = ap.Stream(variables, key="variable", time="epoch", value=place, carry=["kind"])
    right = ap.Stream(gaia, key="gaia", time="epoch", value=place, carry=["colour"])
    return pd.DataFrame(ap.nearest(left, right, epsilon=NEAR, window=1).to_pandas())


def read(gcvs: Path, gaia: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The variables with their kinds, and Gaia with its colours; catalogues have one time."""
    variables, stars = pd.read_parquet(gcvs), pd.read_parquet(gaia)
    # Rows with a number below 0 are stars of another catalogue; a magnitude of 0 is none.
    stars = stars[stars["source_id"] >= 0]
    known = (stars["bp_mag"] > 0.0) & (stars["rp_mag"] > 0.0)
    return (
        variables.assign(variable=np.arange(len(variables)), kind=variables["VarType"].str.strip(), epoch=0.0),
        stars.assign(colour=(stars["bp_mag"] - stars["rp_mag"]).where(known), epoch=0.0).rename(
            columns={"source_id": "gaia"}
        ),
    )


def twin(n: int = 4000, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stars all over the sky, of which one in ten is variable; red ones are Mira stars. Each knows which star it is."""
    chance = np.random.default_rng(seed)
    ra, dec = chance.uniform(0.0, 360.0, n), np.degrees(np.arcsin(chance.uniform(-1.0, 1.0, n)))
    kind = chance.choice(list(KINDS), n)
    colour = pd.Series(kind).map({"M": 5.5, "SRB": 3.0, "EA": 0.4, "RRAB": 0.7}) + chance.normal(0.0, 0.1, n)
    gaia = pd.DataFrame({"gaia": np.arange(n), "ra": ra, "dec": dec, "colour": colour, "epoch": 0.0})
    # Far from the poles, where a second of right ascension is one of arc.
    own = np.flatnonzero(np.abs(dec) < 60.0)[: n // 10]
    off = chance.normal(0.0, 0.3 / 3600.0, (len(own), 2))
    variables = pd.DataFrame(
        {
            "variable": np.arange(len(own)),
            "star": own,
            "ra": ra[own] + off[:, 0],
            "dec": dec[own] + off[:, 1],
            "kind": kind[own],
            "epoch": 0.0,
        }
    )
    return variables, gaia


if __name__ == "__main__":
    main()
