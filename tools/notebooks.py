"""Run the notebooks and write them, with what they print and draw, for Jupyter and for the site.

    python -m tools.notebooks [NAME ...]     all of examples/notebooks, or these
    python -m tools.notebooks --check        run them, and fail if a cell fails or a page shows other code

A notebook is a script, `examples/notebooks/NAME.py`: cells begin with ``# %%``, text cells with ``# %% [markdown]``.
Cells run in this process, one after the other, in an empty folder. A cell shows what it prints, then its last
expression, by its HTML form where it has one; a figure of matplotlib as a small PNG. `NAME.ipynb` beside the script has
all of it, and `docs/gallery/NAME.md` is a page of it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER, GALLERY = ROOT / "examples" / "notebooks", ROOT / "docs" / "gallery"
DOTS = 72
MOST_BYTES = 150_000  # of a notebook, pictures and all


class Output(NamedTuple):
    """What a cell shows: text, HTML, or a picture; empty where it has none."""

    text: str = ""
    html: str = ""
    picture: bytes = b""


class Cell(NamedTuple):
    """A cell, as it is in the script."""

    markdown: bool
    source: str


def main(arguments: list[str]) -> int:
    """Run notebooks, and write or check them; 1 if one is wrong."""
    check = "--check" in arguments
    names = [name for name in arguments if name != "--check"]
    wrong = 0
    for file in [FOLDER / f"{name}.py" for name in names] or sorted(FOLDER.glob("*.py")):
        cells = read(file)
        outputs = run(cells, file)
        if check:
            stale = [page for page in written(file) if not page.exists() or sources(page) != code(cells)]
            wrong += len(stale)
            print(*(f"{page.name} shows other code: python -m tools.notebooks {file.stem}" for page in stale), sep="\n")
            continue
        write(file, cells, outputs)
        size = written(file)[0].stat().st_size
        wrong += size > MOST_BYTES
        print(f"{file.stem}: {len(cells)} cells, {size:,} bytes" + (", too many" if size > MOST_BYTES else ""))
    return 1 if wrong else 0


def read(file: Path) -> list[Cell]:
    """The cells of a script."""
    cells = []
    for part in re.split(r"^# %%", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        markdown = "[markdown]" in head
        text = re.sub(r"^# ?", "", body, flags=re.MULTILINE) if markdown else body
        cells.append(Cell(markdown, text.strip("\n")))
    return cells


def code(cells: list[Cell]) -> list[str]:
    """The code of the cells, as far as there is some."""
    return [cell.source for cell in cells if not cell.markdown]


def written(file: Path) -> tuple[Path, Path]:
    """The notebook and the page of a script."""
    return file.with_suffix(".ipynb"), GALLERY / f"{file.stem}.md"


def sources(page: Path) -> list[str]:
    """The code that a notebook or a page shows."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return [
            found.rstrip("\n") for found in re.findall(r"^```python no-run\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        ]
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def run(cells: list[Cell], file: Path) -> list[Output]:
    """What the cells show, one after the other; whatever a cell raises goes up."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            outputs = [Output() if cell.markdown else _shown(cell.source, file, names) for cell in cells]
        finally:
            os.chdir(before)
    return outputs


def _shown(source: str, file: Path, names: dict[str, Any]) -> Output:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(file), "exec"), names)  # noqa: S102 - a notebook of ours
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(file), "eval"), names)  # noqa: S307 - the same
    text = printed.getvalue()
    if value is None:
        return Output(text)
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=DOTS, metadata={"Software": None})
        return Output(text, picture=picture.getvalue())
    return Output(text, html=_html(value)) if _html(value) else Output(text + repr(value))


def _html(value: Any) -> str:
    import pyarrow as pa

    from appulse.report.notebook import table_html

    if isinstance(value, pa.Table):
        return table_html(value)
    return value._repr_html_() if hasattr(value, "_repr_html_") else ""


def write(file: Path, cells: list[Cell], outputs: list[Output]) -> None:
    """Write the notebook and the page of a script, with their outputs."""
    notebook, page = written(file)
    made = [_notebook_cell(i, *pair) for i, pair in enumerate(zip(cells, outputs, strict=True))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    notebook.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page.parent.mkdir(exist_ok=True)
    parts = []
    for i, (cell, output) in enumerate(zip(cells, outputs, strict=True)):
        parts.append(cell.source if cell.markdown else f"```python no-run\n{cell.source}\n```")
        if output.text:
            parts.append(f"```text\n{output.text.rstrip()}\n```")
        if output.html:
            parts.append(_markdown(output.html))
        if output.picture:
            (GALLERY / f"{file.stem}_{i}.png").write_bytes(output.picture)
            parts.append(f"![The picture that this draws]({file.stem}_{i}.png)")
    where = os.path.relpath(notebook, page.parent)
    parts.append(
        f"As a notebook: [{notebook.name}]({where}). `python -m tools.notebooks {file.stem}` runs and writes it."
    )
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _notebook_cell(number: int, cell: Cell, output: Output) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "cell_type": "markdown" if cell.markdown else "code",
        "id": f"cell-{number}",
        "metadata": {},
        "source": cell.source.splitlines(keepends=True),
    }
    if cell.markdown:
        return whole
    shown: list[dict[str, Any]] = []
    if output.text:
        shown.append({"output_type": "stream", "name": "stdout", "text": output.text.splitlines(keepends=True)})
    data = {"text/html": output.html} if output.html else {}
    if output.picture:
        data = {"image/png": base64.b64encode(output.picture).decode()}
    if data:
        shown.append({"output_type": "display_data", "data": data, "metadata": {}})
    return whole | {"execution_count": None, "outputs": shown}


def _markdown(html: str) -> str:
    """A table of ours as one of Markdown, which forges and the site show alike."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells]
    if "<thead>" in html:
        lines.insert(1, "|" + "---|" * len(cells[0]))
    else:
        lines[:0] = ["| | |", "|---|---|"]
    note = re.search(r"<p>(.*?)</p>", html)
    return "\n".join(lines) + (f"\n\n{note[1]}" if note else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
