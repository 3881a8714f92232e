"""Read back what a job wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["read_results"]


def read_results(folder: str | Path, form: str = "parquet") -> pd.DataFrame:
    """All rows of a file sink on this machine, batch after batch; times without zone are UTC.

    ``form`` is "parquet" or "json", as the job's sink says.
    """
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {"parquet": pd.read_parquet, "json": _read_json}
    if form not in readers:
        raise BadArgument(f"read_results(form={form!r}): give one of {', '.join(readers)}.")
    files = sorted(file for file in Path(folder).glob("batch-*") if file.stat().st_size)
    if not files:
        raise BadArgument(f"There are no results in {folder}. Run the job that writes them first.")
    parts = [readers[form](file) for file in files]
    results: pd.DataFrame = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    for name in results.select_dtypes("datetime").columns:
        results[name] = results[name].dt.tz_localize("UTC")  # Spark writes instants, and Parquet's old type no zone
    return results


def _read_json(file: Path) -> pd.DataFrame:
    return pd.read_json(file, lines=True)
