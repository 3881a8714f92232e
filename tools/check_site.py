#!/usr/bin/env python3
"""Check a built site: links lead somewhere, nothing is loaded from another host, and search has its index.

    python tools/check_site.py out/site

Links to other hosts are not followed.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src")}
NEEDED = ("index.html", "search.html", "searchindex.js", "genindex.html")


class Links(HTMLParser):
    """The ids of a page, what it links to, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) in LOADS and value and ("rel", "canonical") not in attrs:
                self.loads.append(value)
            elif tag == "a" and name == "href" and value:
                self.links.append(value)


def main(arguments: list[str]) -> int:
    """Check the site in a folder and return 1 if anything is wrong with it."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        sys.exit("name the folder of a built site: python tools/check_site.py out/site")
    site = Path(arguments[0]).resolve()
    pages = {page: Links(page) for page in sorted(site.rglob("*.html")) if "_static" not in page.parts}
    wrong = [f"{name} is missing" for name in NEEDED if not (site / name).exists()]
    for page, found in pages.items():
        name = page.relative_to(site)
        wrong += [f"{name} loads {load}" for load in found.loads if not _is_local(load)]
        for link in {*found.links, *found.loads}:
            if _is_local(link) and not _leads(page, link, pages):
                wrong.append(f"{name}: {link} leads nowhere")
    for sheet in sorted(site.rglob("*.css")):
        if re.search(r"(?:url\(\s*['\"]?|@import\s+['\"])(?:https?:)?//", sheet.read_text(encoding="utf-8")):
            wrong.append(f"{sheet.relative_to(site)} loads something from another host")
    print(*wrong, f"{len(pages)} pages in {site}, {len(wrong)} problems", sep="\n")
    return 1 if wrong else 0


def _is_local(link: str) -> bool:
    return not link.startswith("//") and ":" not in link.partition("/")[0]


def _leads(page: Path, link: str, pages: dict[Path, Links]) -> bool:
    path, _, anchor = link.partition("#")
    path = unquote(path.partition("?")[0])
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or target not in pages or unquote(anchor) in pages[target].ids


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
