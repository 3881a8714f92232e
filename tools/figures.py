#!/usr/bin/env python3
"""Write the figures of a benchmark into docs/performance.md, between the marks of its run, and some into README.md.

    python -m benchmarks.bulk --quick --json | python -m tools.figures
    python -m benchmarks.sliding_aggregates --quick --json | python -m tools.figures
    python -m benchmarks.pushes --quick --json | python -m tools.figures
    python -m benchmarks.micro_batches --quick --json | python -m tools.figures
    python -m benchmarks.corrections --quick --json | python -m tools.figures
    python -m benchmarks.encounters --quick --json | python -m tools.figures
    python -m benchmarks.earth --quick --json | python -m tools.figures
    python -m benchmarks.association --quick --json | python -m tools.figures
    python -m benchmarks.fences --quick --json | python -m tools.figures
    python -m benchmarks.pipeline --quick --json | python -m tools.figures
    python -m benchmarks.pipeline --count --quick --json | python -m tools.figures
    python -m benchmarks.faults --quick --json | python -m tools.figures
    python -m benchmarks.uncertain_windows --quick --json | python -m tools.figures
    python -m benchmarks.continuous_queries --quick --json | python -m tools.figures
    python -m benchmarks.similarity_join --quick --json | python -m tools.figures
    python -m benchmarks.sensor_join --quick --json | python -m tools.figures
    python -m benchmarks.incomplete_join --quick --json | python -m tools.figures
    python -m benchmarks.imperfect --quick --json | python -m tools.figures
    python -m benchmarks.network --quick --json | python -m tools.figures
    python -m tools.figures run.log

The figures are the last line that is one JSON object; which run they are of, their names tell. A figure that the run
has not got is shown as not yet run: what stands in a table is always of one run. Speed-ups of the README are those
of docs/performance.md.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
NOT_RUN = "not yet run"

Meanings = dict[str, tuple[str, str]]  # what each figure says, and what it is to be


@dataclass(frozen=True)
class Run:
    """A benchmark whose figures the pages show."""

    name: str
    command: str
    meanings: Meanings

    @property
    def begin(self) -> str:
        return f"<!-- figures: {self.name} -->"

    @property
    def end(self) -> str:
        return f"<!-- /figures: {self.name} -->"


_EMPTY = ("our rows/s / those of {}, Gaussian rows", "≥ 0.7")
_EMPTY_WIDE = ("the same, rows of 100 samples in 3 dimensions", "≥ 0.9")
#: Sessions that are pushed to by hand, and what they do.
_PUSHES = {
    "join": "a join over a time window",
    "join_left": 'the same with `how="left"`',
    "join_changes": 'the same with `emit="changes"`',
    "join_count": "a join over a count window",
    "join_uncertain_count": "a join over an uncertain count window",
    "join_motion": "a join of things with a velocity",
    "join_between": "a join of things that move from reading to reading",
    "nearest": "`Nearest` over a time window",
    "nearest_count": "`Nearest` over a count window",
    "assign": "`Assign`",
    "outliers": "`Outliers`",
    "aggregate_mean": "`WindowAggregate`, a mean over a time window",
    "aggregate_unsure": "the same, a sum of rows that may not exist",
    "aggregate_distribution": "the same, a mean of rows that do, with its distribution",
    "aggregate_max": "the same, a maximum",
    "aggregate_median": "the same, a median",
    "aggregate_count": "the same, a mean over a count window",
    "aggregate_tumbling": "the same, a mean over a block",
    "aggregate_groups": "the same, a mean over a time window, of a tenth as many groups",
    "aggregate_rows": "the same, a mean over a block of 15 rows, of a tenth as many groups",
    "encounters": "`Encounters`",
    "encounters_twice": "the same, where things have two readings at one time",
    "fence_events": "`FenceEvents`, as many things",
    "fence_changes": "the same, once fences have changed",
    "queries": "`QueryMatch`, as many queries",
    "queries_of_two": "`QueryMatch` over two streams",
    "sensors": "`SensorJoin`, readings in bins",
    "sensors_within": "the same, readings within a distance",
    "phenomena": "`Phenomena`, readings in bins",
    "phenomena_within": "the same, readings within a distance",
    "samples": "`SampleCollector`",
}
RUNS = (
    Run(
        "bulk",
        "python -m benchmarks.bulk --quick --json",
        {
            "bulk_vs_best": (
                "time of the best of DuckDB, cKDTree and SedonaDB / ours, one thread, 2 x 500,000 points, same pairs",
                "≥ 1.5",
            ),
            "bulk_vs_best_min": ("the least of it over densities 1 to 100 and 1 to 3 dimensions", "≥ 1"),
            "bulk_gaussian_of_exact": ("our time with normal errors / of exact points", "≤ 1.5"),
            "two_threads": ("time of one thread / of two", "≥ 1.6"),
            "two_threads_of_copies": ("the same of two copies of 8 MB by NumPy", "—"),
            "spark_batch_vs_sedona": (
                "time of Sedona on Spark, time slots folded into x / ours, 2 x 1,000,000 points, Parquet to Parquet",
                "≥ 2.5",
            ),
            "rss_of_window": ("peak memory over tables ten times the window / over tables of one window", "≤ 1.3"),
            "push_20_us": ("microseconds of a push of 20 rows", "≤ 300"),
            "pushes_per_second": ("pushes of one row a second, on one core", "≥ 5,000"),
            "push_p99_over_p50": ("the slowest push in a hundred / the median", "≤ 4"),
        },
    ),
    Run(
        "sliding",
        "python -m benchmarks.sliding_aggregates --quick --json",
        {
            "sliding_vs_duckdb": (
                "time of DuckDB's window functions / ours, windows of 2,000 rows, the least of 8 aggregates",
                "≥ 1",
            ),
            "sliding_vs_best": ("of the best of DuckDB, pandas and Polars / ours, the same", "reported"),
            "quantiles_vs_best": ("the same, of median and p90", "≥ 1"),
            "long_of_short": ("our time with windows of 20,000 rows / of 200", "≤ 1.5"),
            "error_of_sums": ("largest relative error of our sums, of values that vary widely", "≤ 1.2e-16"),
            "error_of_pandas": ("the same of pandas", "—"),
            "worlds_us": (
                "microseconds of a mean over all possible worlds, 2,000 rows that may not exist",
                "reported",
            ),
            "p90_of_worlds_us": ("of a 90th percentile, 100 rows that may not exist, normal errors", "reported"),
        },
    ),
    Run(
        "pushes",
        "python -m benchmarks.pushes --quick --json",
        {f"push_{name}": (what, "≤ 2") for name, what in _PUSHES.items()},
    ),
    Run(
        "micro_batches",
        "python -m benchmarks.micro_batches --quick --json",
        {
            "batch_fixed_of_empty": (
                "time of our micro-batch of 2,000 rows, two sinks included / of an empty stateful query's",
                "≤ 1.3",
            ),
            "batch_fixed_of_equijoin": ("the same / of Spark's own join of two streams by key", "reported"),
            "batch_without_rejects_of_empty": ("the first without a sink for rejects", "reported"),
            "batch_ms": ("milliseconds of our micro-batch", "reported"),
            "pass_ms": ("milliseconds of one that only reads and writes", "reported"),
        },
    ),
    Run(
        "corrections",
        "python -m benchmarks.corrections --quick --json",
        {
            "outliers_of_join": ("time of outliers / of the join with the same epsilon, worst of three", "≤ 1.5"),
            "withdrawals_of_none": ("time with a tenth of the rows withdrawn / with none", "≤ 1.5"),
            "vs_recompute": ("time of DuckDB joining the window again after each batch of corrections / ours", "≥ 20"),
            "bursts_of_independent": ("time with existences that fail in runs / with independent ones", "≤ 3"),
            "audit_cost": ("time with a thousandth of the pruned pairs audited / without", "≤ 1.05"),
            "false_dismissals": ("audited pairs that were pruned wrongly", "0"),
            "converges": ("share of random interleavings that end as a batch over the rows that stand", "1"),
        },
    ),
    Run(
        "encounters",
        "python -m benchmarks.encounters --quick --json",
        {
            "vs_meos": ("time of PyMEOS, trips with boxes and `edwithin` / ours, a day of aircraft, same pairs", "≥ 2"),
            "vs_resample_join": ("of a second by second resampling and a join on cells in Polars / ours", "≥ 2"),
            "vs_traffic_cpa": ("of the closest points of approach of the library traffic / ours, an hour", "≥ 500"),
            "encounters_missed_by_resampling": ("pairs that the resampling does not find", "—"),
            "encounters_missed_at_100_m": ("the same, of pairs within 100 m in place of 5 NM", "—"),
            "legs_of_points": ("our time with motion / of a join of rows with equal stamps", "≤ 3"),
            "legs_of_points_sigma": ("the same, with normal errors", "≤ 3"),
            "legs_of_points_earth": ("the same, along geodesics", "≤ 3"),
            "spark_of_empty": ("our rows/s on Spark / those of a stateful operator that only counts", "≥ 0.5"),
        },
    ),
    Run(
        "earth",
        "python -m benchmarks.earth --quick --json",
        {
            "vs_ckdtree_geod": ("time of SciPy's k-d tree and pyproj / ours, pairs on the ellipsoid", "≥ 1.2"),
            "vs_ckdtree_sphere": ("of a k-d tree of unit vectors / ours, on a sphere", "≥ 1.2"),
            "vs_haversine_balltree": ("of scikit-learn's BallTree by haversine / ours", "≥ 4"),
            "vs_postgis": ("of a PostGIS server with an index / ours, pairs on the ellipsoid", "≥ 20"),
            "position_of_planar": ("our time on the Earth / on a plane, the worst of those below on WGS 84", "≤ 1.3"),
            **{
                f"plane_{name}_{many}": (f"our time on the Earth / on a plane, {what}, {many} pairs", "≤ 1.3")
                for name, what in (("exact", "exact"), ("sphere", "on a sphere"), ("sigma", "with errors"))
                for many in ("few", "some", "many")
            },
            "spark_of_planar": ("our time on a plane / on the Earth, in Spark batch", "≥ 0.8"),
            "covariance_cost": ("time over full covariances / over one deviation a row, the worst of densities", "≤ 4"),
            "ellipse_cost": ("the same, error ellipses on the Earth", "≤ 4"),
            "cylinder_cost": ("time of a cylinder with errors of altitude / without altitudes", "≤ 1.5"),
        },
    ),
    Run(
        "association",
        "python -m benchmarks.association --quick --json",
        {
            "vs_kdtree_nn": ("time of SciPy's cKDTree / ours, the nearest of 100,000 for 100,000, one thread", "≥ 1.2"),
            "vs_pykdtree": ("of pykdtree / ours, the same", "—"),
            "vs_sedona_knn": ("of Sedona's `ST_KNN` / ours, the same on Spark", "≥ 3"),
            "vs_nearest_by": ("of Spark's `nearestByJoin` / ours, 10,000 for 10,000", "≥ 100"),
            "vs_astropy_match": (
                "of astropy, 118,000 stars in 482,000, the lesser of `match_to_catalog_sky` and `search_around_sky`",
                "≥ 3",
            ),
            "assign_10k": ("of SciPy's dense assignment / ours, 10,000 tracks and detections in one scan", "≥ 20"),
            "cosine_vs_blas": (
                "our time for vectors of 768 numbers by cosine / all products by BLAS",
                "≤ 1.2",
            ),
            "cosine_vs_blas_near": ("the same, of vectors near 40 axes", "—"),
            "faiss_flat": ("time of faiss' flat index / ours, the same pairs", "—"),
            "anti_of_inner": ('our time with `how="left_anti"` / of the inner join', "≤ 1.3"),
        },
    ),
    Run(
        "fences",
        "python -m benchmarks.fences --quick --json",
        {
            "vs_strtree": ("time of shapely's STRtree and runs of fixes in NumPy / ours, 100,000 polygons", "≥ 3"),
            "vs_sedonadb": ("time of SedonaDB / ours, matches of a batch, one thread", "≥ 2"),
            "vs_duckdb_spatial": ("of DuckDB spatial / ours, the same", "≥ 5"),
            "vs_geopandas": ("of GeoPandas / ours, the same", "≥ 3.5"),
            "vs_sedona": ("of Sedona / ours, the same on Spark", "≥ 5"),
            "gaussian_of_exact": ("our time with errors of 10 m / without", "≤ 5"),
            "gaussian_of_exact_visits": ("the same, with the highest probability of each visit", "≤ 5"),
            "flicker_ratio": (
                "false events of point in polygon / ours, entries reported as promptly",
                "≥ 20",
            ),
            "false_events_predicted": (
                "false events that `fence_advice` expects / observed: of 13 choices, the one farthest from 1",
                "0.75 to 1.25",
            ),
            "events_of_matches": ("our time for events with errors / for matches with `QueryMatch`", "≤ 2"),
            "nested_ratio": ("false events of two nested fences / ours", "—"),
            "wait_ratio": ("false events of a dwell timer / ours", "—"),
            "moved_a_second": ("fences of 100,000 that change place a second, in `QueryMatch`", "≥ 100,000"),
            "moved_boxes_a_second": ("the same of their boxes", "≥ 100,000"),
            "moved_a_second_of_events": ("the same in `FenceEvents`", "—"),
            "spark_of_pass": ("our fixes/s on Spark / those of a pandas UDF that does nothing", "≥ 0.5"),
            "spark_of_rows": ("our fixes/s on Spark / those of a UDF that makes as many rows as there are events", "—"),
        },
    ),
    Run(
        "time",
        "python -m benchmarks.pipeline --quick --json",
        {
            "vs_explode_1m": (
                "time of explode-cells + equi-join / ours, 2 x 1,000,000 exact points, identical pairs",
                "≥ 10",
            ),
            "vs_explode_100k": ("the same, 2 x 100,000 points", "≥ 2.5"),
            "of_empty_narrow": (_EMPTY[0].format("a stateful operator that only counts"), _EMPTY[1]),
            "of_empty_samples": _EMPTY_WIDE,
            "batch_cost_growth": (
                "cost of a batch under a window 100 times longer with the same matches / under 1",
                "≤ 1.5",
            ),
            "skew_max_over_mean": ("slowest of 8 tiles / mean one, half of all rows in one spot, planned tiles", "≤ 2"),
        },
    ),
    Run(
        "count",
        "python -m benchmarks.pipeline --count --quick --json",
        {
            "of_empty_narrow": (_EMPTY[0].format("two stateful operators in a row that only count"), _EMPTY[1]),
            "of_empty_samples": _EMPTY_WIDE,
            "second_operator_ms": ("milliseconds of a small batch under a count window beyond a time window", "≤ 250"),
            "rss_growth": ("memory in process after 10,000,000 rows through a window of 10,000 / after 10 %", "≤ 1.05"),
        },
    ),
    Run(
        "faults",
        "python -m benchmarks.faults --quick --json",
        {
            "kills": ("`kill -9` of driver and JVM, a Python worker, a broker or a database, at random moments", "20"),
            "kinds": ("kinds of job that were killed", "6"),
            "sinks": ("kinds of sink that were killed through", ""),
            "lost": ("rows of answers and rejects missing after all of them", "0"),
            "doubled": ("rows there more than once; Kafka messages under more than one id", "0"),
            "soak_lag_recovered": ("1: what piled up in bursts of 3 times the load was worked off", "1"),
            "soak_rss_growth": ("memory of workers and JVM heap in the second half of the soak / the first", "≤ 1.1"),
            "batch_cost_with_100k_files": ("time of a batch into a folder of 100,000 files / an empty one", "≤ 1.1"),
            "first_batch_fresh_worker_s": (
                "seconds from an executor's start on a bare worker to the first commit",
                "≤ 15",
            ),
            "upgrade_resumes": ("1: checkpoints of all older formats go on exactly", "1"),
        },
    ),
    Run(
        "uncertain",
        "python -m benchmarks.uncertain_windows --quick --json",
        {
            "vs_rf1": (
                "time of the paper's RF1 / ours, eviction and membership of all of 1,000 live rows at an arrival",
                "≥ 100",
            ),
            "cost_of_refined_normal": ("our time for the same numbers, exact / the refined normal's", "≤ 10"),
            "curve_100k_of_fast_poibin": (
                "our time for the memberships of 100,000 rows / one mass function by fast-poibin",
                "≤ 1.5",
            ),
            "join_vs_baseline_mean": (
                "time of all pairs of samples, compiled / ours, mean of 17 data sets, window 500, 10 samples",
                "≥ 3",
            ),
            "join_vs_baseline_min": ("the same, the least of the 17", "≥ 1"),
            "spark_of_count_window": (
                "our rows/s on Spark under an uncertain window / under a count window of as many rows",
                "≥ 0.7",
            ),
        },
    ),
    Run(
        "join",
        "python -m benchmarks.similarity_join --quick --json",
        {
            "vs_scan": (
                "time of the paper's scan without pruning, compiled, with our SIMD loop / ours, USJ's operating point",
                "≥ 150",
            ),
            "vs_stopping_scan": ("the same, where a pair's sum ends once the threshold is out of reach", "—"),
            "vs_grid": ("of the paper's Grid with both prunings, compiled / ours", "—"),
            "vs_numpy": ("of NumPy and SciPy: far centres ruled out, then cdist / ours", "≥ 100"),
            "vs_duckdb": ("of DuckDB in one statement / ours", "≥ 500"),
            "w_growth": ("our time a tick at windows of 100,000 / of 1,000, as many answers a tick", "≤ 2"),
            "op_pruned": ("share of the pairs that the paper's object-level pruning takes", "0.8-0.9"),
            "answer_share": ("share of the pairs that are answers", "0.001-0.005"),
            "bounds_speedup": ('time with exact probabilities / with `probabilities="bounds"`', "> 1"),
            "bounds_speedup_many": ("the same, where 5 % of the pairs are answers", "> 1"),
            "grouped_10": ("time an object, one arrival a tick and push / 10 a tick", "> 1"),
            "grouped_100": ("the same, 100 a tick", "> 1"),
            "grouped_1000": ("the same, 1,000 a tick", "> 1"),
        },
    ),
    Run(
        "sensors",
        "python -m benchmarks.sensor_join --quick --json",
        {
            "vs_mjoin": ("time of outer MJoin, compiled / ours, 2,000 sensors, window 10 s", "≥ 10"),
            "vs_hmj": ("of a tree of symmetric hash outer joins, compiled, its rows factorised / ours", "≥ 20"),
            "vs_duckdb": ("of DuckDB's self-join by micro-batches / ours", "≥ 20"),
            "sensor_growth": (
                "our time a reading, dearest / cheapest of 200 to 100,000 sensors, answers as long",
                "≤ 1.5",
            ),
            "spark_of_empty": ("our rows/s on Spark / those of a stateful operator that only counts", "≥ 0.5"),
        },
    ),
    Run(
        "holes",
        "python -m benchmarks.incomplete_join --quick --json",
        {
            "f_gap_min": (
                "F-score by the automatic imputer less that of the best of nine others, worst of nine data sets",
                "≥ -0.01",
            ),
            "f_gap_mean": ("the same on the average", "> 0"),
            "ece_max": ("expected calibration error of pairs with a filled row, on the worst data set", "≤ 0.05"),
            "vs_dd_scan": (
                "time of DD+join (scans of 30,000 rows, then all pairs of instances, compiled) / ours, same answers",
                "≥ 10",
            ),
            "vs_knn": ("of KNNImputer and a k-d tree / ours", "≥ 20"),
            "repository_growth": (
                "our cost a row with 1,000,000 rows in the repository / with 10,000, as many matches",
                "≤ 1.5",
            ),
            "spark_of_complete": ("rows/s on Spark with a hole in every tenth row / of complete rows", "≥ 0.5"),
        },
    ),
    Run(
        "imperfect",
        "python -m benchmarks.imperfect --quick --json",
        {
            "auto_of_best_gaps": (
                'CRPS of `imputer="auto"` / of the best imputer it may choose',
                "≤ 1.05",
            ),
            "ece_max": ("expected calibration error of pairs with a filled row", "≤ 0.06"),
            "f_gap_min": ('F-score by `"auto"` less that of the best of nine others', "≥ -0.01"),
            "f_gap_min_at_half": ("the same, of pairs with a probability of 0.5 and more alone", "—"),
            "auto_seconds_of_knn": ('seconds of `"auto"` / of KNN over neighbouring times', "≤ 10"),
            "best_prediction_of_still": (
                "error of the best prediction of a region's place, one to six hours on / of standing still",
                "≤ 0.9",
            ),
            "unlike_f": ("F-score of the recipe for readings unlike their neighbours, planted faults", "≥ 0.9"),
            "unlike_f_of_rolling": ("of the best of a rolling z-score and a rolling median", "—"),
        },
    ),
    Run(
        "network",
        "python -m benchmarks.network --quick --json",
        {
            "filter_recall": ("share of the answers that remain where heads publish filters, 2,000 sensors", "1"),
            "filter_bytes_of_full": ("bytes sent then / where all heads are probed", "≤ 0.6"),
            "feedback_recall": ("share of the answers that remain under relevance feedback", "—"),
            "feedback_bytes_of_full": ("bytes sent then / where all heads are probed", "—"),
        },
    ),
    Run(
        "queries",
        "python -m benchmarks.continuous_queries --quick --json",
        {
            "vs_strtree": (
                "time of shapely's STRtree in bulk / ours: 1,000,000 ranges over 2 attributes, 10 matches a row",
                "≥ 1.5",
            ),
            "vs_ibs": ("of an IBS tree compiled with the same care / ours", "≥ 10"),
            "vs_duckdb": ("of DuckDB's range join / ours", "≥ 20"),
            "vs_polars": ("of Polars' join_where / ours", "≥ 20"),
            "four_attributes_vs_best": ("of the best of them / ours, over 4 attributes", "≥ 3"),
            "window_vs_ibs": (
                "queries over two windows: a shared join with IBS trees behind it, compiled / ours",
                "≥ 7",
            ),
            "query_growth": ("our cost a row with 1,000,000 queries / with 10,000, as many matches", "≤ 2"),
            "bytes_per_query": ("bytes a query over 2 attributes takes beyond its text", "≤ 64"),
            "spark_of_pass": ("rows/s through 100,000 fences / through a mapInArrow that passes them on", "≥ 0.6"),
            "spark_vs_strtree": ("time of a pandas UDF with a broadcast STRtree / ours", "—"),
        },
    ),
)

#: Rows of the table in the README: a run, its figure, the job, and over what.
SPEED_UPS = (
    ("time", "vs_explode_1m", "Join two streams of points on Spark", "cells, exploded rows and an equi-join"),
    ("association", "vs_sedona_knn", "The nearest row of another table, on Spark", "Sedona `ST_KNN`"),
    ("encounters", "vs_meos", "Encounters of aircraft between their reports", "PyMEOS (MobilityDB)"),
    ("encounters", "vs_resample_join", "The same", "resampling to seconds, then a join in Polars"),
    ("earth", "vs_haversine_balltree", "Pairs of positions on a sphere", "scikit-learn BallTree, haversine"),
    ("queries", "vs_strtree", "Match rows with 1,000,000 boxes", "shapely STRtree, in bulk"),
    ("sliding", "quantiles_vs_best", "Medians over windows of 2,000 certain rows", "DuckDB, pandas and Polars"),
    ("join", "vs_numpy", "Join uncertain rows in a sliding window", "NumPy and SciPy `cdist`"),
    ("join", "vs_duckdb", "The same", "DuckDB, in one statement"),
)
_BEGIN, _END = "<!-- speed-ups -->", "<!-- /speed-ups -->"


def main(arguments: list[str]) -> int:
    """Read the figures of a file or of stdin, and write the tables anew."""
    if len(arguments) > 1:
        sys.exit(f"give one file, or none to read stdin; got {' '.join(arguments)}")
    text = Path(arguments[0]).read_text(encoding="utf-8") if arguments else sys.stdin.read()
    run, found = figures(text)
    made = table(run, found)
    page = replaced(PAGE.read_text(encoding="utf-8"), (run.begin, run.end), made, PAGE.name)
    PAGE.write_text(page, encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    README.write_text(replaced(readme, (_BEGIN, _END), speed_ups(page), README.name), encoding="utf-8")
    return 0


def speed_ups(page: str) -> str:
    """The table of the README, of what the page of all figures says."""
    lines = ["| job | faster than | by |", "|---|---|---|"]
    for name, figure, job, over in SPEED_UPS:
        run = next(run for run in RUNS if run.name == name)
        rows = page.split(run.begin)[1].split(run.end, maxsplit=1)[0].splitlines()
        measured = next((row.split("|")[-2].strip() for row in rows if row.startswith(f"| `{figure}` |")), NOT_RUN)
        lines.append(f"| {job} | {over} | {measured if measured == NOT_RUN else f'{_rounded(float(measured))} x'} |")
    return "\n".join(lines)


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figures(text: str) -> tuple[Run, dict[str, float | None]]:
    """The figures of a run, from the last line that is a JSON object, and which run that was."""
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            break
    else:
        sys.exit(f"there is no JSON object among the lines; run {RUNS[0].command}")
    for run in RUNS:
        if set(found) <= set(run.meanings):
            return run, {str(name): None if value is None else float(value) for name, value in found.items()}
    known = {name for run in RUNS for name in run.meanings}
    unknown = ", ".join(sorted(set(found) - known)) or ", ".join(found) + " together"
    sys.exit(f"unknown figures {unknown}; tools/figures.py knows {', '.join(sorted(known))}")


def table(run: Run, found: dict[str, float | None]) -> str:
    """The figures as a markdown table, with the command that prints them."""
    lines = ["| figure | what it is | aim | measured |", "|---|---|---|---|"]
    for name, (what, aim) in run.meanings.items():
        measured = NOT_RUN if found.get(name) is None else f"{found[name]:g}"
        lines.append(f"| `{name}` | {what} | {aim} | {measured} |")
    return "\n".join([*lines, "", f"Printed by `{run.command}`, written here by `python -m tools.figures`."])


def replaced(page: str, marks: tuple[str, str], made: str, name: str) -> str:
    """The page with what is between two marks replaced."""
    begin, end = marks
    if page.count(begin) != 1 or page.count(end) != 1:
        sys.exit(f"{name} is to have one {begin} and one {end}")
    before, rest = page.split(begin)
    return f"{before}{begin}\n\n{made}\n\n{end}{rest.split(end)[1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
