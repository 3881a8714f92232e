"""A page that stands by itself: one HTML file with its style, its data and its script, and nothing from elsewhere.

The page's policy (Content-Security-Policy) lets the browser run that one script, known by its hash, and fetch nothing.
Data travel as JSON that no parser of HTML can mistake for markup, and scripts write them as text only.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from unicodedata import bidirectional

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["empty", "isolated", "notes", "page", "plain", "rounded", "table"]

#: Kinds of signs, by Unicode, that may turn the order of what stands beside them.
_TURNING = {"R", "AL", "AN", "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_BEGIN, _ANY_BEGIN, _END = "\u2068", "\u2066\u2067\u2068", "\u2069"  # of a text with an order of its own
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page(
    title: str, body: str, data: Any, script: str, *, connects: bool = False, library: str = "", styles: str = ""
) -> str:
    """The page: ``body`` is markup, ``title`` is text, ``data`` is plain, ``script`` names a file beside this one.

    With ``connects`` the script may ask the server that the page comes from. ``library`` names a file of others that
    runs before it, ``styles`` that of their style.
    """
    codes = [_asset(name) for name in (library, script) if name]
    hashes = [f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'" for code in codes]
    allowed = " ".join(hashes) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"
    policy += "; connect-src 'self'" if connects else ""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            *([f"<style>\n{_asset(styles)}</style>"] if styles else []),
            f"<style>\n{_asset('page.css')}</style></head>",
            f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>",
            f'<script type="application/json" id="data">{_embedded(data)}</script>',
            *(f"<script>{code}</script>" for code in codes),
            "</body></html>\n",
        ]
    )


def _asset(name: str) -> str:
    return files("appulse.report").joinpath(name).read_text(encoding="utf-8")


def _embedded(data: Any) -> str:
    """JSON in which nothing ends the element it stands in."""
    return json.dumps(plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def plain(value: Any) -> Any:
    """The same of Python's own types, with null for what is no finite number; what JSON does not know as text."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return str(value)


def rounded(values: Any, digits: int = 6) -> list[Any]:
    """Numbers to so many significant digits, whole ones without a point, null for what is not finite."""
    found: list[Any] = []
    for value in np.asarray(values, np.float64).ravel().tolist():
        if not math.isfinite(value):
            found.append(None)
            continue
        short = float(f"{value:.{digits}g}")
        found.append(int(short) if short.is_integer() and abs(short) < 2**53 else short)
    return found


def isolated(name: Any) -> str:
    """A name that stands among others: where it may be read from right to left, between marks that keep it apart.

    Without them a name in such a script, or a mark in it, turns the figures beside it round.
    """
    text = str(name)
    if text.isascii() or all(bidirectional(sign) not in _TURNING for sign in text):
        return text
    kept, inside = "", 0
    for sign in text:
        if sign == _END and not inside:
            continue  # it would end what begins here
        inside += (sign in _ANY_BEGIN) - (sign == _END)
        kept += sign
    return _BEGIN + kept + _END * (inside + 1)


def notes(lines: Iterable[str]) -> str:
    """Paragraphs of text, blank ones left out."""
    return "".join(f"<p>{escape(text)}</p>\n" for text in lines if text)


def empty(title: str, why: str) -> str:
    """A page that says that there is nothing to show."""
    return page(title, f'<p class="empty">{escape(why)}</p>', {}, "")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table of texts; the first column names its row."""
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>\n')
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(lines)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
