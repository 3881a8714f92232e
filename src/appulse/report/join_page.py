"""The page of a similarity join's run: its matches in time, how probable they are, and what the run cost."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.engines.local import as_table
from appulse.report.chart import HALF, LEFT, RIGHT, WIDTH, Clock, Scale, bars, count, lines, svg, time_axis, value_axis
from appulse.report.matches import SIDES, Batch, Matches, batches_of, carried_middles, funnel, matches_of, middles
from appulse.report.page import empty, isolated, notes, page, rounded, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

__all__ = ["join_page"]

MOST_DRAWN, MOST_BATCHES, MOST_ROWS, LONGEST = 6_000, 600, 30, 60
BINS = 48
STEPS = 200  # of the slider
UNITS = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))


def join_page(
    answers: Any,
    rejects: Any = None,
    metrics: Iterable[str] | None = None,
    positions: Any = None,
    *,
    title: str = "A similarity join's run",
    note: str = "",
    unit: str = "",
) -> str:
    """One HTML page, by itself: matches in time, by probability and by distance, and the figures of the run.

    ``answers`` and ``rejects`` are what `appulse.similarity_join` and `appulse.rejects` give: pyarrow, pandas or
    Polars. ``metrics`` are lines of JSON, an object per micro-batch, of `appulse.listen` or ``appulse run --json``.
    ``positions`` is a frame of ``key``, two columns of numbers and perhaps ``stream``: matches are then drawn on their
    map. So they are where the streams carry ``lat`` and ``lon``, or ``x`` and ``y``; else by time, lag and distance.
    ``unit`` is that of distances, as text. At most 6,000 matches are drawn, at even steps through time, while every
    chart counts all; the page says so. Raises `BadArgument` where columns are missing.
    """
    found = matches_of(as_table(answers))
    bad = None if rejects is None else as_table(rejects)
    batches, wrong = batches_of(metrics or ())
    if not (len(found) or found.left or batches or (bad is not None and len(bad))):
        return empty(title, "There is nothing to show: no match, no rejected row, no micro-batch.")
    drawn = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_DRAWN)).round().astype(np.int64))
    data = _data(found, drawn, None if positions is None else as_table(positions), unit) if len(found) else {}
    remarks = [note, _summary(found, bad)]
    if wrong:
        remarks.append(f"Left out: {wrong:,} lines of the metrics, unreadable, of another query, or reported twice.")
    body = [notes(remarks)]
    if len(found):
        body += [_plane(found, len(drawn), data), _distributions(found, unit)]
    else:
        body.append('<p class="empty">No pair matched.</p>')
    body += [_run(batches), _rejected(bad)]
    return page(title, "\n".join(body), data, "join_page.js" if len(found) else "")


def _clock(found: Matches) -> Clock:
    return Clock(found.stamps, found.zone)


def _summary(found: Matches, bad: pa.Table | None) -> str:
    parts = [f"{len(found):,} matches"]
    if len(found):
        pairs = found.streams()
        parts[0] += " of " + "; ".join(f"{name} ({number:,})" for name, number in pairs[:6])
        if len(pairs) > 6:
            parts[0] += f" and {len(pairs) - 6} more pairs of streams"
        clock = _clock(found)
        ends = f"{clock.text(int(found.micros[0]))} to {clock.text(int(found.micros[-1]))} {found.zone}"
        parts.append(ends.strip())
    if found.left:
        parts.append(f"{found.left:,} left again")
    if found.alone:
        parts.append(f"{found.alone:,} rows without a partner")
    if bad is not None:
        parts.append(f"{len(bad):,} rejected rows")
    return "; ".join(parts) + "."


def _data(found: Matches, drawn: Any, positions: pa.Table | None, unit: str) -> dict[str, Any]:
    """What the script reads: the matches that are drawn, by column."""
    seconds, name = _lag_unit(found)
    views = [
        ["time and lag", f"lag: right less left, {name}", rounded(found.lag[drawn] / 1e6 / seconds)],
        ["time and distance", f"distance{f', {unit}' if unit else ''}", rounded(found.distance[drawn])],
    ]
    data: dict[str, Any] = {"views": views, "across": None}
    placed = carried_middles(found, drawn) if positions is None else middles(found, drawn, positions)
    if placed is not None:
        at, axes = placed
        data["across"] = [*axes, rounded(at[:, 0]), rounded(at[:, 1])]
    clock = _clock(found)
    rows = found.table.take(drawn)
    names = [
        [_named(str(stream), str(key)) for stream, key in zip(streams, keys, strict=True)]
        for streams, keys in ((rows[f"{side}_stream"].to_pylist(), rows[f"{side}_key"].to_pylist()) for side in SIDES)
    ]
    return data | {
        "times": (found.micros[drawn] / 1e3).tolist(),
        "texts": _texts(found, clock, drawn),
        "ticks": [
            [place / 1e3, text] for place, text in clock.ticks(float(found.micros[0]), float(found.micros[-1]), 6)
        ],
        "moments": _moments(found),
        "probability": rounded(found.probability[drawn], 5),
        "distance": rounded(found.distance[drawn], 5),
        "names": names,
        "upper": rounded(rows["probability_upper"], 5) if "probability_upper" in rows.column_names else None,
    }


def _named(stream: str, key: str) -> str:
    return f"{isolated(stream[:LONGEST])} {isolated(key[: max(0, LONGEST - 1 - len(stream))])}".rstrip()


def _texts(found: Matches, clock: Clock, drawn: Any) -> list[str]:
    """The times of matches, to the millisecond; without the day where all are on one."""
    texts = [clock.text(round(time / 1e3) * 1e3, fine=True) for time in found.micros[drawn].tolist()]
    one_day = found.stamps and len({text[:10] for text in texts}) == 1
    return [text[11:] for text in texts] if one_day else texts


def _moments(found: Matches) -> list[str]:
    """The times of the slider's steps, to the second where a step is longer."""
    steps = np.linspace(float(found.micros[0]), float(found.micros[-1]), STEPS + 1)
    whole = 1e6 if steps[-1] - steps[0] >= STEPS * 1e6 else 1.0
    return [_clock(found).text(step) for step in (np.round(steps / whole) * whole).tolist()]


def _lag_unit(found: Matches) -> tuple[float, str]:
    most = float(np.abs(found.lag).max()) / 1e6
    return next((pair for pair in UNITS if found.stamps and most >= 2 * pair[0]), (1.0, "s"))


def _plane(found: Matches, drawn: int, data: dict[str, Any]) -> str:
    options = "".join(f"<option>{escape(view[0])}</option>" for view in data["views"])
    if data["across"]:
        options = "<option>map</option>" + options
    remarks = f"{drawn:,} of {len(found):,} matches are drawn, at even steps. " if drawn < len(found) else ""
    unknown = sum(x is None for x in data["across"][2]) if data["across"] else 0
    remarks += f"{unknown:,} of them have rows without a position, and are not on the map. " if unknown else ""
    return f"""<h2>Matches in time</h2>
<div class="columns"><section aria-label="Matches">
<div class="controls">
<button id="play" type="button">Play</button>
<input id="scrub" type="range" min="0" max="{STEPS}" value="{STEPS}" aria-label="End of the stretch of time shown">
<label>stretch <select id="stretch" aria-label="How long a stretch is shown"><option value="1">all</option>
<option value="0.2">a fifth</option><option value="0.05">a 20th</option>
<option value="0.01">a 100th</option></select></label>
<label>by <select id="view" aria-label="What the plane shows">{options}</select></label></div>
<canvas id="plane" width="1520" height="760" role="img" aria-label="Matches as points, listed in the table"></canvas>
<div class="legend"><span>probability</span><span id="ramp"></span><output id="now"></output></div>
{_counted(found)}
<p>{remarks}Keys: space plays and stops, the arrows move the stretch.</p>
</section><section aria-label="Matches of the stretch">
<h2 id="listed-title">In this stretch</h2><div id="listed" aria-live="polite"></div></section></div>"""


def _counted(found: Matches) -> str:
    """Matches by time, all of them."""
    low, high = float(found.micros[0]), float(found.micros[-1])
    high = high if high > low else low + 1e6
    counts = np.histogram(found.micros, bins=BINS, range=(low, high))[0]
    x, y = Scale(low, high, LEFT, WIDTH - RIGHT), Scale(0.0, float(counts.max()), 78, 8)
    wide = (WIDTH - RIGHT - LEFT) / BINS
    drawn = "".join(
        f'<rect class="bar" x="{LEFT + place * wide:.2f}" y="{y(number)}" width="{wide - 1:.2f}" '
        f'height="{78 - y(number):.2f}"><title>{number:,}</title></rect>'
        for place, number in enumerate(counts.tolist())
    )
    return svg(value_axis(y, 2) + time_axis(_clock(found), x, 78, 8) + drawn, 98, "Matches by time")


def _distributions(found: Matches, unit: str) -> str:
    known = found.probability[np.isfinite(found.probability)]
    low = float(np.floor(known.min() * 20 - 1e-9) / 20) if len(known) else 0.0
    low = max(0.0, min(low, 0.95))
    bins = round((1.0 - low) * 20)
    by_probability = np.histogram(np.clip(known, low, 1.0), bins=max(bins, 10), range=(low, 1.0))[0]
    said = (
        "Proven lower bounds of the probability" if "probability_upper" in found.table.column_names else "Probability"
    )
    charts = [_figure(f"{said} of the matches", bars(by_probability.tolist(), low, 1.0, f"{said}, all matches", HALF))]
    far = found.distance[np.isfinite(found.distance)]
    if len(far):
        most = float(far.max()) or 1.0
        counts = np.histogram(far, bins=20, range=(0.0, most))[0]
        name = f"Distance between the mean positions{f', {unit}' if unit else ''}"
        charts.append(_figure(name, bars(counts.tolist(), 0.0, most, "Distance, all matches", HALF)))
    return f'<div class="charts">{"".join(charts)}</div>'


def _figure(name: str, chart: str) -> str:
    return f"<section><h2>{escape(name)}</h2>{chart}</section>\n"


def _run(batches: list[Batch]) -> str:
    """The figures of the run: a funnel of the pairs, and lines over the micro-batches."""
    if not batches:
        return "<p>No metrics were given, so the page shows no funnel, throughput, lag or state.</p>"
    steps = np.unique(np.linspace(0, len(batches) - 1, min(len(batches), MOST_BATCHES)).round().astype(int))
    shown = [batches[step] for step in steps]
    stamps = all(batch.began is not None for batch in shown)
    times = [float(batch.began if stamps and batch.began is not None else batch.number * 1e6) for batch in shown]
    rates = [b.rows / b.seconds if b.rows is not None and b.seconds else None for b in shown]
    series: list[tuple[str, list[float | None]]] = [
        ("Throughput, rows a second", rates),
        _lag(shown),
        ("Time of a micro-batch, seconds", [b.seconds for b in shown]),
        ("Answers of a micro-batch", [b.figures.get("answers") for b in shown]),
        ("Late rows of a micro-batch", [b.figures.get("late") for b in shown]),
        ("State, rows", [b.figures.get("state_rows") for b in shown]),
        ("State, bytes", [b.figures.get("state_bytes") for b in shown]),
    ]
    remarks = [_funnel(batches), f"<h2>The run: {len(batches):,} micro-batches</h2>"]
    remarks.append(f"<p>{'By time, UTC' if stamps else 'By number of the micro-batch'}.")
    remarks.append(f" {len(shown):,} of them are drawn.</p>" if len(shown) < len(batches) else "</p>")
    drawn = [_figure(name, lines(Clock(stamps), times, values, name, HALF)) for name, values in series if any(values)]
    remarks.append(f'<div class="charts">{"".join(drawn)}</div>')
    for what, missing in (
        ("Not reported by the metrics", [name for name, values in series if all(value is None for value in values)]),
        ("Always 0", [name for name, values in series if not any(values) and any(v == 0 for v in values)]),
    ):
        remarks.append(f"<p>{what}: {'; '.join(missing).lower()}.</p>" if missing else "")
    return "\n".join(remarks)


def _lag(shown: list[Batch]) -> tuple[str, list[float | None]]:
    """In a unit that people can read: of old rows that are played again, it is years."""
    most = max((batch.lag for batch in shown if batch.lag is not None), default=0.0)
    size, name = next((pair for pair in UNITS if most >= 2 * pair[0]), (1.0, "s"))
    return f"Lag behind the newest row, {name}", [None if b.lag is None else b.lag / size for b in shown]


def _funnel(batches: list[Batch]) -> str:
    """Bars on a scale of powers of ten, with the counts beside them, as a chart and for screen readers."""
    steps = funnel(batches)
    if not steps:
        return "<p>The metrics report no candidates, so there is no funnel.</p>"
    top = steps[0][2]
    x, bottom = Scale(0.0, float(np.log10(max(top, 10))), 4, HALF - RIGHT), len(steps) * 34 + 4
    remarks = []
    for power in range(int(x.high) + 1):
        remarks.append(f'<path class="grid" d="M{x(power)} 4V{bottom}"/>')
        where = "middle" if power else "start"
        tick = count(10**power)
        remarks.append(f'<text class="tick" x="{x(power)}" y="{bottom + 14}" text-anchor="{where}">{tick}</text>')
    for place, (name, settled, over) in enumerate(steps):
        y = place * 34 + 4
        wide = max(x(np.log10(over)) - 4, 1.5) if over else 0.0
        share = f"{over:,} ({over / top:.3g} of all)" + (f", less {settled:,}" if settled else "")
        remarks.append(f'<rect class="bar" x="4" y="{y + 18}" width="{wide:.1f}" height="12"/>')
        remarks.append(f'<text x="4" y="{y + 13}">{escape(name)}: {escape(share)}</text>')
    label = "; ".join(f"{name}: {over:,}" for name, _settled, over in steps)
    picture = svg("\n".join(remarks), bottom + 20, label, HALF)
    said = "<p>On a scale of powers of ten: from line to line ten times as many.</p>"
    return f'<div class="charts">{_figure("Pruning: pairs left after each step", said + picture)}</div>'


def _rejected(bad: pa.Table | None) -> str:
    """Rejected rows by stream and reason."""
    if bad is None or not len(bad):
        return ""
    if missing := [name for name in ("stream", "reason") if name not in bad.column_names]:
        return notes([f"The rejects have no column {', '.join(missing)}, so they are only counted: {len(bad):,}."])
    counts = bad.group_by(["stream", "reason"]).aggregate([([], "count_all")]).to_pylist()
    counts.sort(key=lambda row: (-row["count_all"], str(row["stream"]), str(row["reason"])))
    rows = [[str(row["stream"]), str(row["reason"]), f"{row['count_all']:,}"] for row in counts[:MOST_ROWS]]
    more = len(counts) - len(rows)
    caption = f"Rows that could not be used: {len(bad):,}" + (f"; {more} more kinds are left out" if more else "")
    return f"<h2>Rejects</h2>{table(['stream', 'reason', 'rows'], rows, caption)}"
