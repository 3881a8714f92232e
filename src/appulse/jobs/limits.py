"""What a job may use, in its file."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from appulse.jobs.fields import Number, Table, Text, taken_by

__all__ = ["LimitsTable", "bytes_of"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?\s*")
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}


def bytes_of(text: str) -> float:
    """Bytes of ``"8 GB"``, ``"512 MiB"`` or ``"4g"``; raises `ValueError`."""
    given = re.sub(r"[kKmMgGtT](?=i?[bB]?\s*$)", lambda unit: "k" if unit[0] in "kK" else unit[0].upper(), text)
    found = _SIZE.fullmatch(given.replace("b", "B"))
    if found is None or not float(found[1]):
        raise ValueError(f"is {text!r}, wanted a size such as '8 GB' or '512 MiB'.")
    each: int = (1024 if found[3] else 1000) ** _POWERS[found[2]]
    return float(found[1]) * each


class LimitsTable(Table):
    """What is there for the job, and what comes in: `appulse run` refuses a job that does not fit, before it starts."""

    memory: Annotated[Text, taken_by(bytes_of)] | None = None
    cores: Annotated[int, Field(ge=1)] | None = None
    rate: Annotated[Number, Field(gt=0)] | None = None
    state_rows: Annotated[int, Field(ge=1)] | None = None

    @property
    def bytes(self) -> float | None:
        """The memory in bytes."""
        return None if self.memory is None else bytes_of(self.memory)
