"""Alerts by webhook, against a server of HTTP that refuses, fails, waits, and is killed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from appulse.engines.alerts import Webhook
from appulse.errors import BadArgument, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Hook", "hook"]


class Hook:
    """What a server got, and how it answers: ``answer`` gives a status and headers for a request, or None to break."""

    def __init__(self, answer: Callable[[str, int], tuple[int, dict[str, str]] | None], port: int = 0) -> None:
        self.taken: Counter[str] = Counter()
        self.bodies: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.tries: Counter[str] = Counter()
        lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                name = self.headers["Idempotency-Key"]
                with lock:
                    outer.tries[name] += 1
                    count = outer.tries[name]
                    outer.headers = dict(self.headers)
                given = answer(name, count)
                if given is None:
                    self.close_connection = True
                    return
                status, headers = given
                if status < 300:
                    with lock:
                        outer.taken[name] += 1
                        outer.bodies[name] = json.loads(body)
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def hook(answer: Callable[[str, int], tuple[int, dict[str, str]] | None]) -> Iterator[Hook]:
    server = Hook(answer)
    try:
        yield server
    finally:
        server.close()


def events(n: int) -> list[tuple[str, str]]:
    return [(f"q-0-{i}", json.dumps({"left_key": i, "message_id": f"q-0-{i}"})) for i in range(n)]


def webhook(url: str, folder: Path, **more: Any) -> Webhook:
    quick = {"wait": 0.01, "longest_wait": 0.05, "timeout": 2.0}
    return Webhook.of({"url": url, **quick, **more}, str(folder / "dead.jsonl"))


def dead(folder: Path) -> list[dict[str, Any]]:
    file = folder / "dead.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_each_event_is_taken_where_a_server_fails_at_random(tmp_path: Path) -> None:
    chance = Random(4)

    def answer(_: str, __: int) -> tuple[int, dict[str, str]] | None:
        kind = chance.random()
        if kind < 0.15:
            return None
        if kind < 0.3:
            return 500, {}
        return (429, {"Retry-After": "0"}) if kind < 0.4 else (204, {})

    with hook(answer) as server:
        sent = webhook(server.url, tmp_path, attempts=30).send(events(60))
    assert (sent.delivered, sent.given_up) == (60, 0)
    assert set(server.taken) == {name for name, _ in events(60)}
    assert server.bodies["q-0-7"] == {"left_key": 7, "message_id": "q-0-7"}
    assert dead(tmp_path) == []


def test_a_server_that_is_killed_and_comes_back_gets_each_event(tmp_path: Path) -> None:
    first = Hook(lambda *_: (200, {}))
    port, taken = first.port, first.taken
    call = webhook(first.url, tmp_path, attempts=50, longest_wait=0.2, parallel=2)
    results: list[Any] = []

    def slowly() -> Iterator[tuple[str, str]]:
        for i, event in enumerate(events(30)):
            if i == 10:
                first.close()
            yield event

    thread = threading.Thread(target=lambda: results.append(call.send(slowly())))
    thread.start()
    time.sleep(0.3)
    second = Hook(lambda *_: (200, {}), port)
    thread.join(60)
    second.close()
    assert (results[0].delivered, results[0].given_up) == (30, 0)
    assert set(taken) | set(second.taken) == {name for name, _ in events(30)}


@pytest.mark.parametrize(
    ("status", "tries", "said"), [(400, 1, "status 400"), (302, 1, "status 302"), (500, 3, "status 500")]
)
def test_what_is_refused_is_a_dead_letter(tmp_path: Path, status: int, tries: int, said: str) -> None:
    with hook(
        lambda name, _: (200, {}) if name != "q-0-1" else (status, {"Location": "http://127.0.0.1:1/"})
    ) as server:
        sent = webhook(server.url, tmp_path, attempts=3).send(events(3))
    assert (sent.delivered, sent.given_up) == (2, 1)
    (letter,) = dead(tmp_path)
    assert letter["message_id"] == "q-0-1"
    assert letter["event"] == {"left_key": 1, "message_id": "q-0-1"}
    assert (letter["attempts"], letter["error"]) == (tries, said)
    assert letter["target"] == server.url.removesuffix("/hook")
    assert server.tries["q-0-1"] == tries


def test_retry_after_is_waited_for(tmp_path: Path) -> None:
    with hook(lambda _, count: (429, {"Retry-After": "1"}) if count == 1 else (200, {})) as server:
        begin = time.monotonic()
        sent = webhook(server.url, tmp_path).send(events(1))
    assert sent.delivered == 1
    assert time.monotonic() - begin >= 1.0
    with hook(lambda *_: (503, {"Retry-After": "120"})) as server:  # longer than there is time
        begin = time.monotonic()
        sent = webhook(server.url, tmp_path, give_up_after=50).send(events(2))
    assert sent.given_up == 2
    assert time.monotonic() - begin < 40
    assert "after 50 seconds" in dead(tmp_path)[0]["error"]


def test_a_server_that_does_not_answer_costs_no_more_than_its_time(tmp_path: Path) -> None:
    released = threading.Event()

    def answer(_: str, __: int) -> None:
        released.wait(60)

    with hook(answer) as server:
        begin = time.monotonic()
        sent = webhook(server.url, tmp_path, timeout=0.2, give_up_after=1.0, parallel=2, attempts=50).send(events(40))
        took = time.monotonic() - begin
        released.set()
    assert sent.given_up == 40
    assert took < 30  # 200 where all are tried
    assert any("not tried" in letter["error"] for letter in dead(tmp_path))


def test_secrets_come_from_the_environment_and_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOOK_KEY", "Bearer s3cret")
    with hook(lambda *_: (401, {})) as server:
        monkeypatch.setenv("HOOK_URL", f"{server.url}/s3cret")
        call = Webhook.of(
            {"url": {"env": "HOOK_URL"}, "headers": {"Authorization": {"env": "HOOK_KEY"}}},
            str(tmp_path / "dead.jsonl"),
        )
        call.send(events(1))
    assert server.headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in (tmp_path / "dead.jsonl").read_text()
    assert "s3cret" not in caplog.text
    with hook(lambda *_: None) as server:
        monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:1/s3cret")
        Webhook.of({"url": {"env": "HOOK_URL"}, "attempts": 1}, str(tmp_path / "dead.jsonl")).send(events(1))
    assert "s3cret" not in (tmp_path / "dead.jsonl").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "url is missing"),
        ({"url": "ftp://host/x"}, "begins with https://"),
        ({"url": "https://me:pass@host/x"}, "a name or a password"),
        ({"url": "https://host", "retries": 3}, "no option 'retries'"),
        ({"url": "https://host", "attempts": 0}, "attempts is 0"),
        ({"url": "https://host", "timeout": "soon"}, "timeout is 'soon'"),
        ({"url": {"env": "NO_SUCH_NAME"}}, "NO_SUCH_NAME of the environment"),
        ({"url": "https://host", "headers": {"A": 3}}, "header A is no text"),
        ({"url": "https://host", "headers": 3}, "headers are a mapping"),
    ],
)
def test_what_is_no_webhook_is_an_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        Webhook.of(options, "dead.jsonl")


def test_no_room_for_dead_letters_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "dead.jsonl").mkdir()
    with hook(lambda *_: (400, {})) as server, pytest.raises(StorageError, match="dead letters"):
        webhook(server.url, tmp_path).send(events(1))
