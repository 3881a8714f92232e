"""Say and draw who met whom, of what a job found.

python examples/draw_meetings.py cabs
python examples/draw_meetings.py geolife
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import prepare_cabs
from meetings import at_places, draw_meetings, meetings

from appulse.errors import AppulseError
from appulse.lab.results import read_results

OUT = Path(__file__).resolve().parent.parent / "out"
ZONES = {"cabs": "America/Los_Angeles", "geolife": "Asia/Shanghai"}
WHO = {"cabs": "cab", "geolife": "user"}
WHAT = {
    "cabs": "two cabs within 200 m in 2 minutes, GPS error 15 m",
    "geolife": "two people within 50 m in a minute, GPS error 10 m",
}


def main(job: str) -> None:
    """Read the answers of a job, group them to meetings, say the longest and draw all."""
    folder = OUT / job
    rows = pd.concat(pd.read_parquet(file) for file in sorted((folder / "input").rglob("*.parquet"))).set_index("fix")
    pairs = read_results(folder / "pairs")
    met = meetings(pairs, rows, WHO[job])
    places = prepare_cabs.PLACES if job == "cabs" else {}
    lasting = met.assign(minutes=((met["end"] - met["begin"]).dt.total_seconds() / 60).round(1))
    print(f"{len(met):,} meetings of {len(pairs):,} pairs of positions; the longest (UTC):")
    longest = lasting.nlargest(10, "minutes")[["first", "second", "begin", "minutes", "pairs"]]
    print(longest.to_string(index=False))
    file = folder / "meetings.png"
    what = (
        f"{len(pairs):,} pairs of positions with probability ≥ 0.8: {WHAT[job]}. A meeting is a run of pairs\n"
        f"less than 10 minutes apart, lasting from 10 minutes on. The {len(rows):,} positions are drawn in grey."
    )
    draw_meetings(met, rows, places, file, finding=finding(met, rows, job, places), what=what, zone=ZONES[job])
    print(f"The picture: {file}")


def finding(met: pd.DataFrame, rows: pd.DataFrame, job: str, places: dict[str, tuple[float, float]]) -> str:
    """What the meetings show, in one line."""
    days = (rows["time"].max() - rows["time"].min()).days + 1
    count = rows[WHO[job]].nunique()
    who = f"{count} {'cabs' if job == 'cabs' else 'people'} met {len(met):,} times in {days} days"
    if not places:
        pair = met.groupby(["first", "second"]).size().idxmax()
        return f"{who}, most often {pair[0]} and {pair[1]}"
    return f"{who}, most often at the {at_places(met, places)['meetings'].idxmax()}"


if __name__ == "__main__":
    if sys.argv[1:] not in (["cabs"], ["geolife"]):
        sys.exit((__doc__ or "").strip())
    try:
        main(sys.argv[1])
    except AppulseError as problem:
        sys.exit(str(problem))
