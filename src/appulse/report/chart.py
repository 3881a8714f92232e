"""Charts as SVG: scales with round ticks, lines over time, bars. Colours are those of the page's style, by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Clock", "Scale", "bars", "count", "lines", "svg", "time_axis", "value_axis"]

WIDTH, HALF, LEFT, RIGHT = 760, 540, 72, 12  # of pictures, in their own units
SHORT = 5  # letters of a tick for which there is room everywhere

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_DAYS = (1, 2, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650, 18250)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Scale:
    """From values to places on the page; a span of nothing is drawn in the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = 0.5 if self.high == self.low else (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the span, at most so many and one more."""
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span / most))
        step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= most)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Clock:
    """How times, microseconds since 1970 or since some start, are written."""

    stamps: bool
    zone: str = ""

    @property
    def remark(self) -> str:
        """The zone of all times, for the notes of a page; empty where they have none."""
        return f"Times are in {self.zone}." if self.stamps and self.zone else ""

    def text(self, micros: float, *, fine: bool = False) -> str:
        """A time as short as it is whole: to the minute unless ``fine`` or it has seconds."""
        if not self.stamps:
            return f"{micros / 1e6:.12g}"
        try:
            when = _EPOCH + timedelta(microseconds=round(micros))
        except OverflowError:
            return f"{micros / 1e6:.12g} s"
        whole = f"{when:%Y-%m-%d %H:%M}"
        if not (fine or micros % 60_000_000):
            return whole
        return f"{when:%Y-%m-%d %H:%M:%S}" + (f".{when:%f}".rstrip("0") if when.microsecond else "")

    def ticks(self, low: float, high: float, most: int = 8) -> list[tuple[float, str]]:
        """Round times within a span, with what to write at them."""
        if not self.stamps:
            return [(tick * 1e6, f"{tick:.6g}") for tick in Scale(low / 1e6, high / 1e6, 0, 1).ticks(most)]
        seconds = (high - low) / 1e6
        steps = (*_STEPS, *(86_400 * days for days in _DAYS))
        step = 1e6 * next((s for s in steps if seconds / s <= most), max(seconds, 1.0))
        places = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return [(place, self._short(place, step)) for place in places]

    def _short(self, place: float, step: float) -> str:
        text = self.text(place, fine=step < 60e6)
        if step >= 86_400e6:
            return text[:10]
        return text[5:10] if text.endswith(" 00:00") else text[11:]


def svg(content: str, height: float, label: str, width: float = WIDTH, name: str = "") -> str:
    """A picture with a name that screen readers say."""
    named = f' id="{name}"' if name else ""
    return (
        f'<svg{named} viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'class="chart{" half" * (width < WIDTH)}">\n{content}</svg>'
    )


def count(value: float) -> str:
    """A number as people write it: 1,234 or 1.2M."""
    if value == 0:
        return "0"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 10 * size or (abs(value) >= size > 1e3):
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}"


def time_axis(clock: Clock, x: Scale, y: float, top: float) -> str:
    """Ticks of time below a chart, with faint lines up to its top; narrow screens leave out every second long text."""
    marks = []
    for number, (place, text) in enumerate(clock.ticks(x.low, x.high)):
        marks.append(f'<path class="grid" d="M{x(place)} {top:g}V{y:g}"/>')
        middle = min(x(place), x.end + RIGHT - 3.2 * len(text))
        kind = "tick roomy" if number % 2 and len(text) > SHORT else "tick"
        marks.append(f'<text class="{kind}" x="{middle:g}" y="{y + 14:g}" text-anchor="middle">{escape(text)}</text>')
    return "".join(marks) + "\n"


def value_axis(y: Scale, most: int = 3, width: float = WIDTH) -> str:
    """Ticks left of a chart."""
    marks = []
    for tick in y.ticks(most):
        marks.append(f'<path class="grid" d="M{LEFT} {y(tick)}H{width - RIGHT}"/>')
        marks.append(f'<text class="tick" x="{LEFT - 6}" y="{y(tick) + 4:g}" text-anchor="end">{count(tick)}</text>')
    return "".join(marks) + "\n"


def lines(
    clock: Clock, times: Sequence[float], values: Sequence[float | None], label: str, width: float = WIDTH
) -> str:
    """One line over time, from 0; a gap where there is no value. A single point is a dot."""
    known, height = [value for value in values if value is not None], 110
    x = Scale(min(times), max(times), LEFT, width - RIGHT)
    y = Scale(0.0, max([*known, 0.0]) or 1.0, height - 22, 8)
    drawn = path(x, y, times, values)
    dots = "".join(
        f'<circle class="dot" cx="{x(time)}" cy="{y(value)}" r="2"><title>{escape(clock.text(time))}: {value:,.6g}'
        "</title></circle>"
        for time, value in zip(times, values, strict=True)
        if value is not None and len(times) <= 400
    )
    body = (
        value_axis(y, width=width) + time_axis(clock, x, height - 22, 8) + f'<path class="line" d="{drawn}"/>\n{dots}\n'
    )
    return svg(body, height, label, width)


def path(x: Scale, y: Scale, times: Sequence[float], values: Sequence[float | None]) -> str:
    """A line with gaps as an SVG path."""
    parts, pen = [], "M"
    for time, value in zip(times, values, strict=True):
        if value is None:
            pen = "M"
            continue
        parts.append(f"{pen}{x(time)} {y(value)}")
        pen = "L"
    return "".join(parts)


def bars(counts: Sequence[int], low: float, high: float, label: str, width: float = WIDTH) -> str:
    """A histogram of equal bins between two ends, the count above each bar that is wide enough."""
    height = 170
    x = Scale(low, high, LEFT, width - RIGHT)
    y = Scale(0.0, float(max([*counts, 1])), height - 22, 20)
    step = (high - low) / len(counts)
    marks = [value_axis(y, width=width)]
    for place, number in enumerate(counts):
        begin, end = x(low + place * step), x(low + (place + 1) * step)
        marks.append(
            f'<rect class="bar" x="{begin + 1:g}" y="{y(number)}" width="{max(end - begin - 2, 0.5):.2f}" '
            f'height="{y(0) - y(number):.2f}"><title>{low + place * step:.3g} to {low + (place + 1) * step:.3g}: '
            f"{number:,}</title></rect>"
        )
        if number and 6.5 * len(count(number)) < end - begin:
            kind = "tick" if 9 * len(count(number)) < end - begin else "tick roomy"
            marks.append(
                f'<text class="{kind}" x="{(begin + end) / 2:.1f}" y="{y(number) - 4:g}" text-anchor="middle">'
                f"{count(number)}</text>"
            )
    marks += [
        f'<text class="tick{" roomy" * (number % 2)}" x="{x(tick)}" y="{height - 8:g}" text-anchor="middle">'
        f"{tick:.4g}</text>"
        for number, tick in enumerate(x.ticks(10))
    ]
    return svg("\n".join(marks) + "\n", height, label, width)
