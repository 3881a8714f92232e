"""A page on this machine alone: one document, and what happens as server-sent events, for who has the token.

The address that is shown has the token. The first visit trades it for a cookie, so that the address of the page, which
histories and screenshots keep, has none. Requests whose ``Host`` is not this machine are refused: a name that others
control could lead a browser here.
"""

from __future__ import annotations

import hmac
import json
import secrets
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from appulse.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Feed", "PageServer"]

_COOKIE = "appulse"
#: Messages that wait for a browser: one that falls behind begins anew.
_WAITING = 512
#: Seconds after which a silent connection gets a comment, so that one that has gone is noticed.
_ALIVE = 10.0
MOST_BROWSERS = 32


class Feed:
    """Messages for all who listen. ``first`` makes what a new one gets before anything else."""

    def __init__(self, first: Callable[[], list[Any]]) -> None:
        self._first, self._lock = first, Lock()
        self._listeners: set[Queue[bytes | None]] = set()
        self._closed = False

    def publish(self, message: Any) -> None:
        """Send a message to all who listen now; nobody who is slow holds it up."""
        with self._lock:
            if not self._listeners:
                return
            event = _event(message)
            for one in list(self._listeners):
                try:
                    one.put_nowait(event)
                except Full:
                    self._listeners.discard(one)
                    self._end(one)

    def listen(self) -> Iterator[bytes]:
        """What a new one gets, for as long as it keeps up; raises `BadArgument` where there are too many."""
        queue: Queue[bytes | None] = Queue(_WAITING)
        with self._lock:
            if self._closed or len(self._listeners) >= MOST_BROWSERS:
                raise BadArgument(f"{len(self._listeners)} browsers listen already. Close one.")
            first = [_event(message) for message in self._first()]
            self._listeners.add(queue)
        try:
            yield from first
            while True:
                try:
                    event = queue.get(timeout=_ALIVE)
                except Empty:
                    event = b": alive\n\n"
                if event is None:
                    return
                yield event
        finally:
            with self._lock:
                self._listeners.discard(queue)

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def close(self) -> None:
        """Nothing more comes."""
        with self._lock:
            self._closed = True
            for one in self._listeners:
                self._end(one)
            self._listeners.clear()

    @staticmethod
    def _end(queue: Queue[bytes | None]) -> None:
        with suppress(Empty):
            while True:
                queue.get_nowait()
        queue.put(None)


def _event(message: Any) -> bytes:
    return b"data: " + json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"


class PageServer:
    """Serves a page and its feed on the loopback interface, from threads of its own; a context manager."""

    def __init__(self, html: str, feed: Feed, port: int = 0, token: str | None = None) -> None:
        self.token = secrets.token_urlsafe(24) if token is None else token
        self._feed = feed
        try:
            self._server = _Server(port, html.encode(), feed, self.token)
        except (OSError, OverflowError) as error:
            raise BadArgument(f"port {port} cannot be listened to: {error}. Give another, or 0 for any.") from error
        self._thread = Thread(target=self._server.serve_forever, name="appulse-page", daemon=True)

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://127.0.0.1:{self._server.server_port}/?token={self.token}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._feed.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, html: bytes, feed: Feed, token: str) -> None:
        self.html, self.feed, self.token = html, feed, token
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        host, _, _ = (self.headers.get("Host") or "").rpartition(":")
        if host not in ("127.0.0.1", "localhost"):
            self._say(HTTPStatus.FORBIDDEN, b"This page is for this machine alone.")
        elif _same(next(iter(parse_qs(asked.query).get("token", [])), ""), self.server.token):
            cookie = f"{self._name}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
            self._say(HTTPStatus.SEE_OTHER, b"", Location="/", **{"Set-Cookie": cookie})
        elif not _same(self._given(), self.server.token):
            self._say(HTTPStatus.FORBIDDEN, b"The address lacks its token. Open the one that appulse serve shows.")
        elif asked.path == "/":
            self._say(HTTPStatus.OK, self.server.html, **{"Content-Type": "text/html; charset=utf-8"})
        elif asked.path == "/feed":
            self._stream()
        else:
            self._say(HTTPStatus.NOT_FOUND, b"There is no such page.")

    @property
    def _name(self) -> str:
        return f"{_COOKIE}{self.server.server_port}"  # cookies do not know ports

    def _given(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie") or "")
        except CookieError:
            return ""
        return found[self._name].value if self._name in found else ""

    def _say(self, status: HTTPStatus, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self._guard()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _guard(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")

    def _stream(self) -> None:
        self.close_connection = True
        try:
            events = self.server.feed.listen()
            first = next(events, b": nothing\n\n")
        except BadArgument as error:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode())
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self._guard()
        self.end_headers()
        with suppress(OSError):  # the browser has gone
            self.wfile.write(first)
            for message in events:
                self.wfile.write(message)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: addresses have tokens."""


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
