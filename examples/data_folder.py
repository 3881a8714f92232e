"""Where the real data is that examples, tests and benchmarks read; none of them needs it.

It is ``../shared/data`` of the checkout, or what the environment variable ``APPULSE_DATA`` names. Empty, it names
nothing: all goes on as on a machine without the data.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["data_at"]

ROOT = Path(__file__).resolve().parent.parent


def data_at(path: str = "") -> Path:
    """Where a file of the data is, whether or not there is one; without a path the folder of it all."""
    folder = os.environ.get("APPULSE_DATA", str(ROOT.parent / "shared" / "data"))
    return Path(folder or os.devnull, path)  # nothing can be in a device
