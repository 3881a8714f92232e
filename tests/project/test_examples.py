"""The examples in docstrings of public functions and classes, as doctests in this process."""

from __future__ import annotations

import doctest
import pydoc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import appulse as ap
from tools.measure import documented

NAMES = {"ap": ap, "np": np, "pa": pa, "pd": pd}
PUBLIC = documented()


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_docstring_runs(name: str) -> None:
    made = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs=dict(NAMES))
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    printed: list[str] = []
    for one in made:
        assert runner.run(one, out=printed.append).failed == 0, "".join(printed)


def test_help_names_the_arguments_and_columns_of_a_join() -> None:
    page = pydoc.plain(pydoc.render_doc(ap.similarity_join))
    assert all(f"``{name}``" in page for name in ("epsilon", "probability", "window", "how", "emit"))
    assert "left_stream, left_key, left_time" in page
