"""The site, made of the pages in this folder by Sphinx: `make site`. Nothing on a page comes from another host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent

project = "appulse"
author = "The appulse maintainers"
project_copyright = author
_SOURCE = (HERE.parent / "src" / "appulse" / "__init__.py").read_text(encoding="utf-8")
version = release = (re.search(r'^version = "(.*)"', _SOURCE, re.MULTILINE) or [""])[1]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # anchors as on a forge, checked
myst_enable_extensions = ["colon_fence", "deflist"]
nitpicky = True
suppress_warnings = ["myst.header"]  # written figures go from one to three
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "appulse"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "default"
pygments_dark_style = "github-dark"

# The navigation. A page that stands nowhere here comes last under "How to".
CONTENTS: dict[str, list[str]] = {
    "Start": ["first-minutes", "tutorial", "examples"],
    "How to": [
        "encounters",
        "association",
        "fences",
        "queries",
        "false-detections",
        "incomplete",
        "sensors",
        "unlike",
        "late",
        "report",
        "network",
    ],
    "Concepts": ["glossary", "semantics", "errors"],
    "Coming from": ["coming-from"],
    "Reference": ["reference", "command-line", "changes"],
    "Operations": ["operating", "live", "deployment", "spark-connect", "versions", "licences"],
    "Performance": ["performance", "figures/index"],
    "How it is built": ["architecture", "decisions/index", "papers", "reproduction"],
}
# What stands below a page in the navigation: all pages of a folder, or these.
BELOW: dict[str, str] = {
    "examples": "gallery/*",
    "semantics": "semantics/*",
    "errors": "errors/*",
    "reference": "reference/*",
    "architecture": "architecture/*",
    "papers": "papers/*",
    "reproduction": "reproduction/*",
    "coming-from": "coming-from/*",
    "decisions/index": "0*",
    "figures/index": "*",
}


def contents(_app: Sphinx, name: str, source: list[str]) -> None:
    """Add the navigation to a page: pages stay plain Markdown that a forge shows."""
    if name == "index":
        there = sorted(page.stem for page in HERE.glob("*.md"))
        placed = {page for pages in CONTENTS.values() for page in pages}
        left = [page for page in there if page not in placed and page != "index"]
        parts = []
        for caption, pages in CONTENTS.items():
            listed = [page for page in pages if (HERE / f"{page}.md").exists()] + (left if caption == "How to" else [])
            parts.append(_tree(listed, f":caption: {caption}\n"))
        source[0] += "\n\n" + "\n\n".join(parts)
    elif name == "changes":
        log = (HERE.parent / "CHANGELOG.md").read_text(encoding="utf-8")
        source[0] = log.replace("](docs/", "](")
    elif name in BELOW:
        source[0] += "\n\n" + _tree([BELOW[name]], ":glob:\n")


def _tree(pages: list[str], options: str) -> str:
    listed = "\n".join(pages)
    return f"```{{toctree}}\n:hidden:\n{options}\n{listed}\n```\n"


def setup(app: Sphinx) -> dict[str, Any]:
    """Hook the navigation in."""
    app.connect("source-read", contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
