"""Topics of Kafka that a query writes to, and others that it has: whether two are one."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from appulse.model.folders import Clash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Topics", "topic_clashes"]

_PLACES = ("subscribe", "topic", "subscribepattern", "assign")


class Topics(NamedTuple):
    """Topics of a cluster: by the addresses of its brokers, and the topics' names or a pattern of them."""

    servers: frozenset[str]
    names: tuple[str, ...]
    pattern: str | None = None

    @classmethod
    def of(cls, servers: str, names: Iterable[str]) -> Topics:
        """Topics by name; ``servers`` is a list with commas, as Kafka takes it."""
        found = (one.strip().lower() for one in servers.split(","))
        return cls(frozenset(one for one in found if one), tuple(name.strip() for name in names))

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Topics | None:
        """Those that options of Spark's reader or writer name; None where they name none as text."""
        given = {name.lower(): value for name, value in options.items() if isinstance(value, str)}
        place = next((name for name in _PLACES if name in given), None)
        if place is None:
            return None
        servers, text = given.get("kafka.bootstrap.servers", ""), given[place]
        if place == "subscribepattern":
            return cls.of(servers, ())._replace(pattern=text)
        if place != "assign":
            return cls.of(servers, text.split(","))
        try:
            names = json.loads(text)
        except ValueError:
            return None  # Spark refuses it, and what is no object
        return cls.of(servers, names) if isinstance(names, dict) else None

    def shared(self, other: Topics) -> str | None:
        """The name of one of these topics that is also one of the others'."""
        if not self.servers & other.servers:
            return None
        return next((name for name in self.names if name in other.names or other._matches(name)), None)

    def _matches(self, name: str) -> bool:
        try:
            return self.pattern is not None and re.fullmatch(self.pattern, name) is not None
        except re.error:  # a pattern of Java's
            return False


def topic_clashes(written: Mapping[str, Topics], alerts: Mapping[str, Topics], read: Iterable[Topics]) -> list[Clash]:
    """Which topics that are written, by the names of their sinks, are read, or are two sinks' that have other messages.

    Several of the ``alerts`` may share a topic.
    """
    found = []
    for mine, one in (dict(written) | dict(alerts)).items():
        if (topic := next(filter(None, map(one.shared, read)), None)) is not None:
            problem = f"the query reads the topic {topic!r}, and would read what it writes. Give a topic of its own."
            found.append(Clash(mine, problem))
    pairs = [*combinations(written, 2), *((sink, alert) for sink in written for alert in alerts)]
    for first, second in pairs:
        if (topic := written[first].shared((dict(written) | dict(alerts))[second])) is not None:
            problem = (
                f"{topic!r} is the topic of {first}, too. Its readers could not separate the two. "
                "Give each a topic of its own."
            )
            found.append(Clash(second, problem))
    return found
