"""Labels of rows by number: what is written of rows is theirs alone, not of what a worker saw before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from appulse.model.strings import Labels
from appulse.operators.labels import LabelNumbers


def test_rows_without_labels_have_none_whatever_others_had() -> None:
    numbers = LabelNumbers()
    none = numbers.of(None, 2)
    some = numbers.of(Labels.of([pa.array(["x", None, "y"])]), 3)
    assert numbers.labels(none) is None
    assert numbers.labels(np.empty(0, np.int64)) is None
    found = numbers.labels(some)
    assert found is not None
    assert [found.values[code] for code in found.codes.tolist()][1] == b""
    assert len(set(found.codes.tolist())) == 3
