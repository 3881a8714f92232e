"""Astropy: each star's nearest one in another catalogue, and all pairs within an arc second.

    python astropy_match.py left.parquet right.parquet seconds

The rows have ``ra`` and ``dec`` in degrees. Prints the seconds of both, the best of three runs after a first one, and
what they found: the sum of the nearest rows' places, and the number of pairs.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from astropy import units
from astropy.coordinates import SkyCoord, search_around_sky

if TYPE_CHECKING:
    from collections.abc import Callable


def best(call: Callable[[], Any]) -> tuple[float, Any]:
    """The least time of three runs after a first one, and what the last returned."""
    found, seconds = call(), []
    for _ in range(3):
        begun = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - begun)
    return min(seconds), found


def main(left: str, right: str, near: str) -> None:
    """Match both ways; coordinates are made in each run, as trees are kept with them."""
    columns = [
        [table[name].to_numpy() for name in ("ra", "dec")] for table in (pq.read_table(left), pq.read_table(right))
    ]

    def coordinates() -> list[Any]:
        return [SkyCoord(ra, dec, unit="deg") for ra, dec in columns]

    def nearest() -> Any:
        ours, theirs = coordinates()
        return ours.match_to_catalog_sky(theirs)[0]

    def pairs() -> Any:
        return search_around_sky(*coordinates(), float(near) * units.arcsec)[0]

    match, places = best(nearest)
    around, found = best(pairs)
    print(json.dumps({"match": match, "around": around, "places": int(places.sum()), "pairs": len(found)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
