"""How pictures look: one palette that colour-blind readers can tell apart, quiet axes, the finding as the title."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from appulse.errors import NotBuilt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

__all__ = ["INK", "PALETTE", "QUIET", "style", "titled"]

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")  # Okabe and Ito
INK, QUIET = "#22272e", "#6b7280"

_SETTINGS: dict[Any, Any] = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 150,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#c5cad3",
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "date.converter": "concise",
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the house style, on no screen."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise NotBuilt('Pictures need matplotlib, which is not installed. pip install "appulse[demo]"') from None
    mpl.use("agg")
    with mpl.rc_context(_SETTINGS):
        yield


def titled(figure: Figure, finding: str, what: str) -> None:
    """The finding in large letters at the top left, what was looked at below it."""
    figure.text(0.045, 0.965, finding, fontsize=15, fontweight="bold", va="top")
    figure.text(0.045, 0.915, what, fontsize=10.5, color=QUIET, va="top")
