"""The tables of a job file that say who is alerted, and of which answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from appulse.engines.alerts import check_address
from appulse.jobs.fields import Duration, Place, Settings, Table, Text
from appulse.jobs.sinks import TopicSink
from appulse.jobs.sources import format_of
from appulse.model.times import duration

__all__ = ["Alerts"]

_Value = str | int | float | bool
_SECRET_HEADERS = ("authorization", "cookie", "key", "signature")


def _as_values(given: Any) -> Any:
    return (
        {name: value if isinstance(value, list) else [value] for name, value in given.items()}
        if isinstance(given, dict)
        else given
    )


def _are_headers(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if isinstance(value, str) and any(word in name.lower() for word in _SECRET_HEADERS):
            raise ValueError(f"{name} is a secret, which no job file holds. Give {name} = {{ env = 'NAME' }}.")
    return given


def _is_address(url: Any) -> Any:
    if isinstance(url, str):
        check_address(url)  # a BadArgument, which pydantic reports in its place
    return url


#: The values of columns that make an answer an alert.
Only = Annotated[dict[Text, Annotated[list[_Value], Field(min_length=1)]], BeforeValidator(_as_values)]


class _FromEnvironment(Table):
    """The name of what the environment holds."""

    env: Text


class WebhookTable(Table):
    """Answers that are posted, one by one, as JSON."""

    format: Literal["webhook"]
    url: Annotated[
        Annotated[str, Tag("text")] | Annotated[_FromEnvironment, Tag("environment")],
        Discriminator(lambda given: "text" if isinstance(given, str) else "environment"),
        AfterValidator(_is_address),
    ]
    headers: Annotated[Settings, AfterValidator(_are_headers)] = {}
    only: Only = {}
    dead_letter: Place | None = None
    timeout: Duration | None = None
    attempts: Annotated[int, Field(ge=1)] | None = None
    give_up_after: Duration | None = None
    parallel: Annotated[int, Field(ge=1)] | None = None

    def spark(self, place: Callable[[str], str]) -> tuple[str, dict[str, Any]]:
        """Kind and options, as `appulse.start` takes them."""
        found: dict[str, Any] = {
            "url": self.url if isinstance(self.url, str) else {"env": self.url.env},
            "headers": self.headers,
            "only": self.only,
        }
        for name in ("timeout", "give_up_after"):
            if (value := getattr(self, name)) is not None:
                found[name] = duration(value) / 1e6
        found |= {name: v for name in ("attempts", "parallel") if (v := getattr(self, name)) is not None}
        return "webhook", found if self.dead_letter is None else found | {"dead_letter": place(self.dead_letter)}


class TopicAlertTable(TopicSink):
    """Answers that are written to a topic of Kafka."""

    only: Only = {}
    dead_letter: Place | None = None
    attempts: Annotated[int, Field(ge=1)] | None = None

    def spark(self, place: Callable[[str], str]) -> tuple[str, dict[str, Any]]:
        """Kind and options, as `appulse.start` takes them."""
        kind, found = super().spark(place)
        found |= {"only": self.only}
        if self.attempts is not None:
            found["attempts"] = self.attempts
        return kind, found if self.dead_letter is None else found | {"dead_letter": place(self.dead_letter)}


Alerts = list[
    Annotated[
        Annotated[WebhookTable, Tag("WebhookTable")] | Annotated[TopicAlertTable, Tag("TopicAlertTable")],
        Discriminator(lambda given: "WebhookTable" if format_of(given) == "webhook" else "TopicAlertTable"),
    ]
]
