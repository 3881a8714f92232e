"""The timeline below the map: what sensors say on the whole, and when phenomena stood."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from appulse.report.chart import LEFT, Scale, count, path, svg, time_axis
from appulse.report.film import time_scale
from appulse.report.page import rounded
from appulse.report.phenomena import COLOURS, lanes

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats
    from appulse.report.film import Film
    from appulse.report.phenomena import Phenomenon

__all__ = ["timeline"]

ROWS = 12  # more values than that share one


def timeline(clip: Film) -> str:
    """A picture, with the cursor that the script moves."""
    top, spread = 8.0, 90.0
    x, times = time_scale(clip), clip.frames.astype(float).tolist()
    marks = []
    if not clip.readings.classes:
        tenth, middle, most = _quantiles(clip.values)
        y = Scale(float(np.nanmin(tenth)), float(np.nanmax(most)), top + spread, top)
        up, down = path(x, y, times, rounded(most)), path(x, y, times[::-1], rounded(tenth[::-1])).replace("M", "L", 1)
        if np.isfinite(tenth).all():
            marks.append(f'<path class="band" d="{up}{down}Z"/>')
        marks.append(f'<path class="line" d="{path(x, y, times, rounded(middle))}"/>')
        marks += [
            f'<text class="tick" x="{LEFT - 6}" y="{y(tick) + 4:g}" text-anchor="end">{count(tick)}</text>'
            for tick in y.ticks(3)
        ]
        top += spread + 12
    bars, bottom = _lives(clip, x, top)
    axis = time_axis(clip.clock, x, bottom, 8)
    cursor = f'<path id="cursor" class="cursor" d="M{LEFT} 4V{bottom:g}"/>'
    label = "Median of the sensors, and the lives of the phenomena, over time"
    return svg(axis + "\n".join(marks) + bars + cursor, bottom + 20, label, name="timeline")


def _values(clip: Film, one: Phenomenon) -> str:
    """The value of a phenomenon, or the first and the last one."""
    first, last = (clip.value_text(event.row["value"]) for event in (one.events[0], one.events[-1]))
    return first if first == last else f"{first}, at last {last}"


def _quantiles(values: Floats) -> list[Floats]:
    """A tenth, half and nine tenths of the sensors by frame; NaN where none has a value."""
    found = np.full((3, len(values)), np.nan)
    some = np.isfinite(values).any(axis=1)
    if some.any():
        found[:, some] = np.nanquantile(values[some], (0.1, 0.5, 0.9), axis=1)
    return list(found)


def _lives(clip: Film, x: Scale, top: float) -> tuple[str, float]:
    """A bar per phenomenon, higher values above; and where they end."""
    values = {one.value for one in clip.phenomena}
    split = len(values) <= ROWS
    ordered = sorted(values, key=lambda value: (isinstance(value, str), value), reverse=True) if split else [None]
    marks = []
    for value in ordered:
        mine = [one for one in clip.phenomena if not split or one.value == value]
        lane_of = lanes((one.begin, one.end) for one in mine)
        height = max(3.0, min(11.0, 60.0 / (1 + max(lane_of.values(), default=0))))
        for place, one in enumerate(mine):
            y = top + lane_of[place] * height
            begin, end = x(float(one.begin)), x(float(clip.frames[-1] if one.end is None else one.end))
            marks.append(
                f'<rect class="life" x="{begin}" y="{y:.1f}" width="{max(end - begin, 1.5):.2f}" '
                f'height="{height - 1:.1f}" style="fill:var(--p{one.colour % COLOURS})">'
                f"<title>{escape(one.name)}: {escape(_values(clip, one))}</title></rect>"
            )
        below = top + (1 + max(lane_of.values(), default=0)) * height
        if split:
            text = escape(clip.value_text(value).partition(" to ")[0][:11])
            middle = (top + below) / 2 + 3
            marks.append(f'<text class="tick" x="{LEFT - 6}" y="{middle:.1f}" text-anchor="end">{text}</text>')
        top = below + 3
    return "\n".join(marks), top + 2
