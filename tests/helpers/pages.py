"""Pages of results as a browser takes them: parsed, and drawn by Chromium where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from appulse.connect.page_server import Feed

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
VOID = {"meta", "input", "img", "br"}


class Page(HTMLParser):
    """A page as a browser would take it: tags that close, texts of scripts, all attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        else:
            self.said += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0][1])


def read(text: str, libraries: int = 0) -> Page:
    """A page that loads nothing, and runs only scripts whose hashes its policy names: ``libraries``, then its own."""
    found = Page(text)
    kinds = [kind.get("type") for kind, _ in found.scripts]
    assert kinds in (["application/json", *[None] * (libraries + 1)], ["application/json"])
    policy = next(
        value or "" for name, value in found.attributes if name == "content" and "default-src" in (value or "")
    )
    assert "default-src 'none'" in policy
    for number, (_, code) in enumerate(found.scripts[1:]):
        assert b64encode(sha256(code.encode()).digest()).decode() in policy
        assert number < libraries or not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|fetch|https?:(?!//www.w3)", code
        )
    assert not any(name in ("src", "href") or name.startswith("on") for name, _ in found.attributes)
    return found


def drawn(file: Path, moment: str) -> str:
    """A page after its script ran, as Chromium says; skips where there is none that starts."""
    return shown_by(f"{file.as_uri()}#{moment}", file.parent)


def shown_by(address: str, profile: Path) -> str:
    """The page of an address after its script ran, as `drawn`."""
    browser = shutil.which("chromium") or pytest.skip("there is no chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--virtual-time-budget=2000"]
    ran = subprocess.run(
        [browser, *flags, "--dump-dom", address], capture_output=True, text=True, check=False, timeout=180
    )
    if "<html" not in ran.stdout:
        pytest.skip("chromium does not start here")
    return ran.stdout


def close_once_read(feed: Feed) -> None:
    """Close a feed when a browser has begun to read it, however long that takes to start."""

    def wait() -> None:
        last = time.monotonic() + 60.0
        while not feed.listeners and time.monotonic() < last:
            time.sleep(0.05)
        time.sleep(1.0)
        feed.close()

    threading.Thread(target=wait, daemon=True).start()


def with_script(text: str, noted: str) -> str:
    """A page whose browser may run another script, before its own."""
    before, _, after = re.sub("<meta http-equiv[^>]*>", "", text).rpartition("<script>")
    return before + noted + after


def titled(page: str) -> Any:
    """What the title of a page that a browser shows says."""
    title = re.search("<title>(.*?)</title>", page)
    assert title is not None
    return json.loads(unescape(title[1]))
