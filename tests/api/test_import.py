"""What `import appulse` brings, what it costs, and that everything public is documented."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import appulse as ap
from appulse import errors

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "pyspark",
    "pandas",
    "scipy",
    "polars",
    "py4j",
    "numba",
    "pydantic",
    "rich",
    "typer",
    "matplotlib",
    "prometheus_client",
)


def _fresh(code: str) -> Any:
    """What a new interpreter prints, as JSON."""
    program = f"import sys, json, time\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_import_takes_less_than_half_a_second() -> None:
    """The median of several fresh interpreters."""
    code = "begin = time.perf_counter(); import appulse; print(time.perf_counter() - begin)"
    assert median(_fresh(code) for _ in range(5)) < 0.5


def test_import_brings_nothing_heavy() -> None:
    """Neither Spark nor pandas nor scipy nor Polars nor a compiler, nor what only the command line needs."""
    code = f"import appulse; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    assert _fresh(code) == []


def test_streams_and_models_bring_no_spark_and_no_frames() -> None:
    """Describing a call is light too."""
    code = (
        "import appulse as ap\n"
        "ap.Stream(None, key='id', time='ts', value=ap.Gaussian('x', sigma=1.0)); ap.TimeWindow('1 s')\n"
        "print(json.dumps([m for m in ('pyspark', 'pandas', 'scipy', 'polars', 'py4j') if m in sys.modules]))"
    )
    assert _fresh(code) == []


def test_a_call_in_process_never_imports_spark() -> None:
    """With every model, by call and by hand, rejects included."""
    code = """
import pyarrow as pa, appulse as ap
table = pa.table({"id": [1, 2], "ts": [0.0, 1.0], "x": [0.0, None], "s": [[[1.0]], [[2.0]]]})
question = dict(epsilon=1.0, probability=0.1, window=ap.TimeWindow(10))
models = ap.Exact("x"), ap.Gaussian("x", sigma=1.0), ap.Ball("x", radius=1.0), ap.Samples("s")
for model in models:
    stream = ap.Stream(table, key="id", time="ts", value=model)
    ap.rejects(ap.self_join(stream, **question))
ap.similarity_join(*(ap.Stream(table, key="id", time="ts", value=m) for m in models), **question)
join = ap.SimilarityJoin(ap.Stream(None, key="id", time="ts", value=models[0]), **question)
join.push(table)
print(json.dumps([m for m in sys.modules if m.split(".")[0] in ("pyspark", "py4j")]))
"""
    assert _fresh(code) == []


def test_the_public_names_are_those_that_can_be_had() -> None:
    """Once each, where `dir` and star imports find them; nothing else is there."""
    assert len(set(ap.__all__)) == len(ap.__all__)
    assert dir(ap) == sorted(ap.__all__)
    assert {*ap._HOME_OF, *ap._ROOMS, "version"} == set(ap.__all__)
    for name in ap.__all__:
        assert getattr(ap, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Sample'"):
        ap.Sample  # noqa: B018 - the access is what is tested


def test_editors_see_the_same_names_as_programs() -> None:
    """The imports for type checkers are those made on first use."""
    source = Path(ap.__file__).read_text(encoding="utf-8")
    block = source[source.index("if TYPE_CHECKING:") : source.index("version = ")]
    seen: dict[str, str] = {}
    for home, names in re.findall(r"from (\S+) import \(?([\w,\s]+?)\)?\n(?=    from|\n)", block):
        seen |= dict.fromkeys(re.findall(r"\w+", names), home)
    assert seen == ap._HOME_OF | dict.fromkeys(ap._ROOMS, "appulse")


@pytest.mark.parametrize("name", [name for name in ap.__all__ if name != "version"])
def test_everything_public_has_a_docstring(name: str) -> None:
    """Of its own, with its methods and properties."""
    thing = getattr(ap, name)
    assert inspect.getdoc(thing)
    assert thing.__doc__
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        for part, member in vars(thing).items():
            if not part.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert member.__doc__, f"{name}.{part}"


def test_every_module_says_what_it_is_for() -> None:
    """In its first line."""
    for path in sorted((ROOT / "src" / "appulse").rglob("*.py")):
        first = path.read_text(encoding="utf-8").lstrip()
        assert first.startswith('"""'), path


def test_the_reference_tells_of_everything_public() -> None:
    """Each name is in the index and has a section, and no section is about something else."""
    index = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    public = set(ap.__all__)
    assert public <= set(re.findall(r"\[`(\w+)`\]", index))
    assert set(re.findall(r"^## `(\w+)`", pages, re.MULTILINE)) == public


def test_the_tree_of_exceptions_is_drawn_whole() -> None:
    """Every exception is public, is in the picture, and is what the picture says it also is."""
    named = {name: getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    raised = {name: kind for name, kind in named.items() if not issubclass(kind, Warning)}
    assert set(raised) <= set(ap.__all__)
    drawn = dict(re.findall(r"[├└]── (\w+) .*\(also an? (\w+)\)", errors.__doc__ or ""))
    assert set(drawn) == set(raised) - {"AppulseError"}
    for name, builtin in drawn.items():
        assert issubclass(raised[name], errors.AppulseError)
        assert issubclass(raised[name], getattr(import_module("builtins"), builtin))


def test_hints_name_the_nearest_word() -> None:
    """Or all there are."""
    assert errors.nearest("epsilom", ["epsilon", "window"]) == " Did you mean 'epsilon'?"
    assert errors.nearest("zzz", ["b", "a"]) == " Known: a, b."
    assert errors.nearest("zzz", []) == " Known: none."
