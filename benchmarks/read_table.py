"""Write the rows of a table of a catalog as JSON: ``python -m benchmarks.read_table TABLE FILE SETTINGS``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import appulse as ap


def main() -> None:
    """Read, write."""
    table, out, settings = sys.argv[1:]
    rows = ap.session(2, **json.loads(settings)).table(table).toJSON().collect()
    Path(out).write_text("\n".join(rows))


if __name__ == "__main__":
    main()
