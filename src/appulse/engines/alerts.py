"""Events for people and programs outside: posted to a webhook, tried again, and kept in a file if nobody took them."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from appulse.errors import BadArgument, StorageError, nearest

if TYPE_CHECKING:
    from email.message import Message

__all__ = ["DeadLetters", "Failure", "Sent", "Webhook", "from_environment"]

_LOG = logging.getLogger("appulse")
_WRITES = threading.Lock()  # not of a file of its own: that travels to other processes
#: Answers of a server that another attempt may not get.
_PASSING = frozenset({408, 425, 429})
_PIECE = 1_000
_NUMBERS = {"timeout": 10.0, "attempts": 6, "wait": 0.5, "longest_wait": 30.0, "give_up_after": 60.0, "parallel": 4}
_TEXTS = ("url", "dead_letter")
NO_FILE = "The checkpoint is not on this machine: say where events go that nobody takes, by dead_letter."


@dataclass(frozen=True)
class Failure:
    """Why an event was given up."""

    attempts: int
    error: str


@dataclass(frozen=True)
class Sent:
    """What became of some events."""

    delivered: int
    given_up: int


class _NoRedirect(HTTPRedirectHandler):
    """Headers with a secret go to the host that was named, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class DeadLetters:
    """A file of JSON lines for events that were given up."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def add(self, letters: Iterable[tuple[str, str, Failure]], target: str) -> None:
        """Append events (id, JSON, why), on disk before this returns; raises `StorageError`."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [
            json.dumps(
                {
                    "message_id": name,
                    "given_up_at": now,
                    "target": target,
                    "attempts": why.attempts,
                    "error": why.error,
                    "event": json.loads(body),
                }
            )
            for name, body, why in letters
        ]
        if not lines:
            return
        try:
            with _WRITES:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"The dead letters {self.path} cannot be written: {error.strerror}. {len(lines):,} events are sent "
                "again at the next start. Make room, or name another file with dead_letter."
            ) from error


@dataclass(frozen=True)
class Webhook:
    """Posts events as JSON, each with its id in the header ``Idempotency-Key``: at least once.

    An attempt takes ``timeout`` seconds at most. What may pass (no connection, no answer, status 408, 425, 429 or 5xx)
    is tried ``attempts`` times, after as long as ``Retry-After`` says, else after a random part of ``wait`` seconds,
    twice as much each time up to ``longest_wait``. All events of a call of `send` together have ``give_up_after``
    seconds. What was given up goes to ``dead_letter``.
    """

    url: str
    dead_letter: DeadLetters
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = _NUMBERS["timeout"]
    attempts: int = int(_NUMBERS["attempts"])
    wait: float = _NUMBERS["wait"]
    longest_wait: float = _NUMBERS["longest_wait"]
    give_up_after: float = _NUMBERS["give_up_after"]
    parallel: int = int(_NUMBERS["parallel"])

    @staticmethod
    def of(options: Mapping[str, Any], dead_letter: str | None) -> Webhook:
        """A webhook by its options, checked; `BadArgument`. ``dead_letter`` is the file unless they name one."""
        known = (*_TEXTS, "headers", *_NUMBERS)
        for name in options:
            if name not in known:
                raise BadArgument(f"A webhook has no option {name!r}.{nearest(str(name), known)}")
        url = from_environment(options.get("url"), "url")
        check_address(url)
        headers = options.get("headers", {})
        if not isinstance(headers, Mapping):
            raise BadArgument("A webhook's headers are a mapping of names to text.")
        file = options.get("dead_letter", dead_letter)
        if file is None:
            raise BadArgument(NO_FILE)
        return Webhook(
            url,
            DeadLetters(from_environment(file, "dead_letter")),
            {str(name): from_environment(value, f"header {name}") for name, value in headers.items()},
            **{name: _number(name, options[name]) for name in _NUMBERS if name in options},
        )

    @property
    def target(self) -> str:
        """Where events go, without what may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def send(self, events: Iterable[tuple[str, str]]) -> Sent:
        """Post events (id, JSON); returns once each was taken or is in the file of dead letters."""
        deadline = time.monotonic() + self.give_up_after
        rest, delivered, given_up = iter(events), 0, 0
        with ThreadPoolExecutor(self.parallel, thread_name_prefix="appulse-alert") as pool:
            while piece := list(islice(rest, _PIECE)):
                found = pool.map(lambda event: self._deliver(event[0], event[1], deadline), piece)
                dead = [(*event, why) for event, why in zip(piece, found, strict=True) if why is not None]
                self.dead_letter.add(dead, self.target)
                delivered, given_up = delivered + len(piece) - len(dead), given_up + len(dead)
                if dead:
                    _LOG.warning(
                        "%d events were not taken by %s and are in %s: %s",
                        *(len(dead), self.target, self.dead_letter.path, dead[0][2].error),
                    )
        return Sent(delivered, given_up)

    def _deliver(self, name: str, body: str, deadline: float) -> Failure | None:
        """Post an event until it is taken; why not, if it is not."""
        error = f"not tried: the {self.give_up_after:g} seconds of its micro-batch were over"
        for attempt in range(self.attempts):
            left = deadline - time.monotonic()
            if left <= 0:
                return Failure(attempt, error)
            status, error, after = self._post(name, body, min(self.timeout, left))
            if status is not None and 200 <= status < 300:
                return None
            if status is not None and status < 500 and status not in _PASSING:
                return Failure(attempt + 1, error)
            if attempt + 1 == self.attempts:
                break
            chance = random.uniform(0, min(self.longest_wait, self.wait * 2**attempt))  # noqa: S311 - no secret
            pause = chance if after is None else after
            if time.monotonic() + pause >= deadline:
                return Failure(attempt + 1, f"{error}; the next attempt would be after {self.give_up_after:g} seconds")
            time.sleep(pause)
        return Failure(self.attempts, error)

    def _post(self, name: str, body: str, timeout: float) -> tuple[int | None, str, float | None]:
        """The status of one attempt, what was wrong in words, and after how long to try again if it says so."""
        headers = {"Content-Type": "application/json", "User-Agent": "appulse", **self.headers, "Idempotency-Key": name}
        request = Request(self.url, body.encode(), headers, method="POST")  # noqa: S310 - the scheme is checked
        try:
            with build_opener(_NoRedirect).open(request, timeout=timeout) as answer:
                return answer.status, "", None
        except HTTPError as error:
            with error:
                return error.code, f"status {error.code}", _retry_after(error.headers)
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            return None, f"{type(error).__name__}: {reason}".replace(self.url, self.target), None


def check_address(url: str) -> None:
    """Raise `BadArgument` for an address to which nothing can be posted, or that has a secret in it."""
    try:
        parts = urlsplit(url)
        named = parts.hostname and parts.port != 0
    except ValueError as error:
        raise BadArgument(f"A webhook's url cannot be read: {error}.") from error
    if parts.scheme not in ("http", "https") or not named:
        raise BadArgument("A webhook's url begins with https:// (or http://) and names a host.")
    if parts.username or parts.password:
        raise BadArgument(
            "A webhook's url has a name or a password in it. Give them in a header, from the environment: "
            "'headers': {'Authorization': {'env': 'NAME'}}."
        )


def check_only(given: Any, known: Sequence[str]) -> dict[str, Sequence[Any]]:
    """The values of columns that make an answer an alert; raises `BadArgument` for other columns than the known."""
    if not isinstance(given, Mapping):
        raise BadArgument(f"only={given!r}: give a mapping of columns to values, such as {{'event': ['enter']}}.")
    for name in given:
        if name not in known:
            raise BadArgument(f"only= names {name!r}, which is not a column of the answers.{nearest(name, known)}")
    return {name: value if isinstance(value, list | tuple) else [value] for name, value in given.items()}


def from_environment(value: Any, what: str) -> str:
    """Text, or what the environment holds where it is ``{"env": "NAME"}``; raises `BadArgument`."""
    if isinstance(value, Mapping) and list(value) == ["env"]:
        name = str(value["env"])
        if name not in os.environ:
            raise BadArgument(
                f"{what} is taken from {name} of the environment, which has none. Set it and start again."
            )
        return os.environ[name]
    if not isinstance(value, str) or not value:
        raise BadArgument(f"{what} is {'missing' if value is None else 'no text'}. Give text, or {{'env': 'NAME'}}.")
    return value


def _number(name: str, value: Any) -> Any:
    whole = isinstance(_NUMBERS[name], int)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value < 1e6:
        raise BadArgument(f"A webhook's {name} is {value!r}. Give a {'whole ' if whole else ''}number above 0.")
    return value


def _retry_after(headers: Message) -> float | None:
    """Seconds that a server asks to wait: a number, or until a date."""
    given = (headers.get("Retry-After") or "").strip()
    if given.isdecimal():
        return float(given)
    try:
        return max(0.0, (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
