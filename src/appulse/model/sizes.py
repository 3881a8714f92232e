"""Bytes in the units that people read."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes as people say them: ``1.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
