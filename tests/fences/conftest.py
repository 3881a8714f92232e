"""Parts of one reading and more, so that few readings are looked at by several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from appulse.operators import fences

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fences, "_PART", 1)
        yield
