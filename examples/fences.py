"""A grid of fences over a city: in which of a million each fix of a cab is, surely or probably.

    python examples/fences.py [--tracks FILE] [--fences N]

Five cabs of San Francisco (Cabspotting, 24 days of 2008), or, where that file is not there, a generated twin. Fences
are cells of the map side by side, as SQL conditions over degrees: of a million each is some 22 by 18 metres.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import prepare_cabs
import pyarrow as pa
from data_folder import data_at

import appulse as ap

HALF = 0.1  # degrees from the centre to each side of the grid
GPS = 15.0  # metres, the standard deviation east and north
LEAST = 0.1  # a fence of 22 by 18 metres holds no such fix with more than a quarter


def main() -> None:
    """Match the fixes as they are, and as they may be; say what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at(prepare_cabs.TRACKS))
    parser.add_argument("--fences", type=int, default=1_000_000)
    asked = parser.parse_args()
    real = asked.tracks.exists()
    source = str(asked.tracks) if real else f"a generated twin, as there is no {asked.tracks}"
    fixes = prepare_cabs.read(asked.tracks) if real else prepare_cabs.twin(3, 1)
    rows, fences = pa.Table.from_pandas(fixes, preserve_index=False), grid(round(asked.fences**0.5))
    print(f"{len(rows):,} fixes from {source}; {len(fences):,} fences, such as {fences['condition'][0]}")
    models = {
        "as they are": (ap.Position("latitude", "longitude"), None),
        f"good to {GPS:g} metres": (ap.Position("latitude", "longitude", sigma=GPS), LEAST),
    }
    for name, (model, probability) in models.items():
        standing = ap.QueryMatch(ap.Stream(None, key="cab", time="time", value=model), probability=probability)
        begin = time.perf_counter()
        standing.change(fences)
        standing.push(rows.slice(0, 0))  # the index is made when it is needed
        loaded = time.perf_counter()
        found = standing.push(rows)
        done = time.perf_counter()
        expected = np.asarray(found["probability"]).sum()
        print(f"\nFixes {name}: {len(found):,} answers, of which {expected:,.1f} are expected to be true")
        each = (done - loaded) / len(rows) * 1e6
        print(f"{loaded - begin:.1f} s to take the fences in, {each:.1f} microseconds a fix")
        print(standing.busiest(3).to_pandas().to_string(index=False))


def grid(side: int) -> pa.Table:
    """Fences side by side, so many to a side."""
    latitude, longitude = (np.linspace(at - HALF, at + HALF, side + 1).round(7).tolist() for at in prepare_cabs.CITY)
    texts = [
        f"longitude >= {west} AND longitude < {east} AND latitude >= {south} AND latitude < {north}"
        for west, east in pairwise(longitude)
        for south, north in pairwise(latitude)
    ]
    return pa.table({"query": np.arange(len(texts)), "condition": texts})


if __name__ == "__main__":
    main()
