"""Alerts of a job in this process: answers that are posted once they are written."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from appulse.connect.as_text import json_lines
from appulse.engines.alerts import check_only
from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from appulse.connect.sinks import Sink
    from appulse.engines.alerts import Webhook

__all__ = ["Alerting", "events_of"]


class Alerting:
    """A sink that also posts answers: to each webhook those with certain values of columns."""

    def __init__(self, sink: Sink, name: str, hooks: Sequence[tuple[Mapping[str, Sequence[Any]], Webhook]]) -> None:
        self._sink, self._name, self._hooks = sink, name, hooks

    def begin(self, number: int) -> None:
        """Begin the sink."""
        self._sink.begin(number)

    def write(self, number: int, rows: pa.Table) -> None:
        """Write rows, then post them; returns once each was taken, or is in a file of dead letters."""
        self._sink.write(number, rows)
        for only, hook in self._hooks:
            hook.send(events_of(chosen(rows, only), self._name))

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()


def chosen(rows: pa.Table, only: Mapping[str, Sequence[Any]]) -> pa.Table:
    """The rows with certain values of columns."""
    for name, values in check_only(only, rows.column_names).items():
        try:
            wanted = pa.array(values, rows.schema.field(name).type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadArgument(f"only= has values of {name!r} that its column cannot have: {error}") from error
        rows = rows.filter(pc.is_in(rows[name], wanted))
    return rows


def events_of(rows: pa.Table, name: str) -> Iterator[tuple[str, str]]:
    """Rows as JSON, each with an id: the name, a hash of the row and its number among equal ones."""
    seen: Counter[str] = Counter()
    for batch in rows.to_batches(max_chunksize=1_000):
        for text in json_lines(batch):
            digest = blake2b(text.encode(), digest_size=8).hexdigest()
            seen[digest] += 1
            message_id = f"{name}-{digest}-{seen[digest]}"
            yield message_id, f'{text[:-1]}{"," * (text != "{}")}"message_id":{json.dumps(message_id)}}}'
