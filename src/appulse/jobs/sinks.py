"""The tables of a job file that say where answers, and rejects, go."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Tag

from appulse.jobs.fields import Settings, Table, Text, options_of
from appulse.jobs.sources import DataTable, format_of

__all__ = ["Sink"]

Place = Callable[[str], str]
# A parameter of an address, or before its host.
_PASSWORD = re.compile(r"(?:pass(?:word|phrase|wd)|\bpwd)\s*=|//[^/@:]*:[^/@]*@", re.IGNORECASE)


def _is_open(url: str) -> str:
    """An address without a password."""
    if _PASSWORD.search(url):
        raise ValueError(
            "has a password, which no job file holds. Give it beside the url: "
            "options = { user = 'NAME', password = { env = 'NAME' } }."
        )
    return url


class FilesSink(DataTable):
    """Files, or a Delta table."""

    def spark(self, place: Place) -> tuple[str, dict[str, Any]]:
        """Format and options, as `appulse.start` takes them; ``place`` says where a path of the job is."""
        return self.format, {**options_of(self.options), "path": place(self.path)}

    def shown(self, place: Place) -> str:
        """Where rows go, in words."""
        return place(self.path)


class TableSink(Table):
    """A table of a database."""

    format: Literal["jdbc"]
    url: Annotated[Text, AfterValidator(_is_open)]
    table: Text
    options: Settings = {}

    def spark(self, _: Place) -> tuple[str, dict[str, Any]]:
        """Format and options, as `appulse.start` takes them."""
        return "jdbc", {**options_of(self.options), "url": self.url, "dbtable": self.table}

    def shown(self, _: Place) -> str:
        """Where rows go, in words."""
        return f"table {self.table}"


class IcebergSink(Table):
    """A table of a catalog, which the session's settings name."""

    format: Literal["iceberg"]
    table: Text
    options: Settings = {}

    def spark(self, _: Place) -> tuple[str, dict[str, Any]]:
        """Format and options, as `appulse.start` takes them."""
        return "iceberg", {**options_of(self.options), "table": self.table}

    def shown(self, _: Place) -> str:
        """Where rows go, in words."""
        return f"table {self.table}"


class TopicSink(Table):
    """A topic of Kafka; ``key`` is the column by which messages go."""

    format: Literal["kafka"]
    servers: Text
    topic: Text
    key: Text | None = None
    options: Settings = {}

    def spark(self, _: Place) -> tuple[str, dict[str, Any]]:
        """Format and options, as `appulse.start` takes them."""
        found = {**options_of(self.options), "kafka.bootstrap.servers": self.servers, "topic": self.topic}
        return "kafka", found | ({} if self.key is None else {"key": self.key})

    def shown(self, _: Place) -> str:
        """Where rows go, in words."""
        return f"topic {self.topic}"


_KINDS = {"jdbc": "TableSink", "iceberg": "IcebergSink", "kafka": "TopicSink"}


def _kind_of_sink(given: Any) -> str:
    return _KINDS.get(str(format_of(given)), "FilesSink")


Sink = Annotated[
    Annotated[FilesSink, Tag("FilesSink")]
    | Annotated[TableSink, Tag("TableSink")]
    | Annotated[IcebergSink, Tag("IcebergSink")]
    | Annotated[TopicSink, Tag("TopicSink")],
    Discriminator(_kind_of_sink),
]
