"""Kills, soaks and starts: what a job comes through without a row lost or doubled, and what that costs.

Figures: ``kills`` of drivers with their JVM, of Python workers, of a broker and a database, over several ``kinds`` of
job and ``sinks``; rows ``lost`` and ``doubled`` against undisturbed runs, where a Kafka message counts once for each
``message_id``; ``soak_lag_recovered`` (1: what had piled up in bursts of 3 times the load was worked off) and
``soak_rss_growth`` (second half over first, lower quartiles, of workers and heap after a collection), at 80 %
of the capacity measured before; ``batch_cost_with_100k_files`` in the sink's folder over that of an empty one;
``first_batch_fresh_worker_s`` from the start of an executor on a cluster's worker that has nothing; and
``upgrade_resumes`` (1: checkpoints of every older format go on exactly).

``--quick`` makes 21 kills over seven kinds and soaks two minutes; ``--kills N`` and ``--soak SECONDS`` make more.
``--only`` names parts (kills, soak, files, cluster, upgrade), ``--seed`` other moments. What needs a server that cannot
be had is left out, and reported.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

from benchmarks.fault_trials import faults, session, trials
from benchmarks.harness import report, say, scratch
from benchmarks.soak import batch_cost_with_many_files, first_batch_of_fresh_worker, soak, upgrade

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.fault_trials import Trial

#: Kinds of job of a quick run: one for each sink, and each way to keep state.
QUICK = ("time", "changes", "queries", "sensors", "nearest", "topics-parquet", "topics-kafka")
PARTS = ("upgrade", "kills", "files", "cluster", "soak")
_UNTIMED = ("upgrade", "kills")  # side by side; the others, which are timed, run alone
_AT_ONCE = 3  # trials: a job that starts or is waited for leaves a core to another


def main() -> None:
    """Kill, resume, compare, soak, report."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="21 kills, a soak of two minutes")
    options.add_argument("--json", action="store_true", help="print the figures as one JSON object, last")
    options.add_argument("--kills", type=int, help="so many kills")
    options.add_argument("--soak", type=float, help="seconds of the soak")
    options.add_argument("--only", help=f"comma-separated parts: {', '.join(PARTS)}")
    options.add_argument("--kinds", help="comma-separated kinds of job to kill")
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    wanted = PARTS if asked.only is None else tuple(asked.only.split(","))
    random = Random(asked.seed)  # noqa: S311 - moments, not secrets
    figures: dict[str, float | None] = {}
    if wanted != ("cluster",):
        session()  # for all that comes
    with scratch() as folder:
        with ThreadPoolExecutor() as pool:
            untimed = [pool.submit(_part, part, asked, folder / part, random) for part in wanted if part in _UNTIMED]
        for made in untimed:
            figures |= made.result()
        for part in wanted:
            if part not in _UNTIMED:
                figures |= _part(part, asked, folder / part, random)
    report(figures, as_json=asked.json)


def _part(part: str, asked: argparse.Namespace, folder: Path, random: Random) -> dict[str, float | None]:
    begun = time.perf_counter()
    folder.mkdir()
    figures = _figures(part, asked, folder, random)
    say(f"{part}: {time.perf_counter() - begun:.0f} s, {json.dumps(figures)}")
    return figures


def _figures(part: str, asked: argparse.Namespace, folder: Path, random: Random) -> dict[str, float | None]:
    if part == "upgrade":
        return upgrade(folder)
    if part == "files":
        return batch_cost_with_many_files(folder)
    if part == "cluster":
        return first_batch_of_fresh_worker(folder)
    if part == "soak":
        return soak(folder, asked.soak or (120.0 if asked.quick else 600.0))
    kinds = QUICK if asked.quick else None
    found = trials(folder, kinds if asked.kinds is None else asked.kinds.split(","), 8 if asked.quick else 40)
    many = asked.kills or (21 if asked.quick else 80)
    counted: Counter[str] = Counter(kills=0, lost=0, doubled=0)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = []
        for i, trial in enumerate(found):
            share = many * (i + 1) // len(found) - many * i // len(found)
            running.append((trial, pool.submit(_killed, trial, share, random.getrandbits(32))))
        through = {trial.sink for trial, one in running if one.result()["kills"]}
    for _, one in running:
        counted.update(one.result())
    counted["kinds"], counted["sinks"] = len(found), len(through)
    return {name: float(value) for name, value in counted.items()}


def _killed(trial: Trial, many: int, seed: int) -> Counter[str]:
    try:
        return faults(trial, many, Random(seed))  # noqa: S311 - moments, not secrets
    finally:
        trial.end()


if __name__ == "__main__":
    main()
