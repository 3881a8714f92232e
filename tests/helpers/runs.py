"""Runs of rows, as kernels that slide over them take them."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def runs(draw: st.DrawFn, of: st.SearchStrategy[float]) -> tuple[list[int], list[int], list[float]]:
    """Where runs begin and end, and the values: they slide by few rows or by many, stand still, go back, or skip."""
    values = draw(st.lists(of, max_size=60).map(lambda some: some * draw(st.integers(1, 3))))
    place = st.integers(0, len(values))
    ends = draw(st.lists(st.tuples(place, place).map(sorted), max_size=12))
    if draw(st.booleans()):
        ends = [list(pair) for pair in zip(*(sorted(side) for side in zip(*ends, strict=True)), strict=True)]
    return [a for a, _ in ends], [b for _, b in ends], values
