"""The measures of the code: circles of files, and each rule on tiny sources."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tools import circles, measure, trips

if TYPE_CHECKING:
    from pathlib import Path

STATE = """
class State:
    def __init__(self, handle):
        self._version = handle.getValueState("version", "n long")
    def load(self, key): ...
"""
RESULT = """
class SparkResult: ...
"""


def package(folder: Path, **sources: str) -> Path:
    """A package with these modules; ``__`` in a name stands for a package within it."""
    root = folder / "pack"
    for name, source in sources.items():
        file = root.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source))
    for inner in {root, *(file.parent for file in root.rglob("*.py"))}:
        (inner / "__init__.py").touch()
    return root


def found_in(root: Path) -> list[list[str]]:
    return circles.circles(circles.imports(root))


def test_imports_anywhere_make_circles(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        a="import pack.b",
        b="def f():\n    from pack.c import g",
        c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack import a",
        d="from pack import a, b",
        inner__e="from . import f\nfrom ..d import x",
        inner__f="from pack.inner.e import y",
    )
    assert found_in(root) == [["pack.a", "pack.b", "pack.c"], ["pack.inner.e", "pack.inner.f"]]
    assert circles.imports(root)["pack.b"] == {"pack.c": 2}


def test_a_package_is_a_file_like_others(tmp_path: Path) -> None:
    root = package(tmp_path, a="from pack import name", b="import pack.a")
    assert found_in(root) == []
    (root / "__init__.py").write_text("from pack.a import other\nname = other")
    assert found_in(root) == [["pack", "pack.a"]]


def test_diamonds_are_no_circles(tmp_path: Path) -> None:
    root = package(
        tmp_path, top="from pack import left, right", left="import pack.base", right="import pack.base", base=""
    )
    assert found_in(root) == []


def test_the_checkout_has_no_circles(capsys: pytest.CaptureFixture[str]) -> None:
    assert circles.main() == 0, capsys.readouterr().out


def test_lines_and_signatures_leave_the_laboratory_out(tmp_path: Path) -> None:
    nine = ", ".join("abcdefghi")
    root = package(
        tmp_path,
        kernels__loop=f"def wide({nine}, *args, **more): ...\ndef fits(a, b, c, d, e, f, g, h, *args): ...",
        door=f"class Door:\n    def wide(self, {nine}): ...\n    def fits(self, a, b, c, d, *, e, f, g, h): ...",
        lab__play=f"def wide({nine}): ...",
    )
    source = measure.modules(root)
    assert sum(module.lines for module in source) == 5
    assert measure.wide_signatures(source) == [("door.wide", 9), ("kernels.loop.wide", 9)]


def test_stages_use_the_state_of_a_key(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        state=STATE,
        probe="class Count(StatefulProcessor):\n    def init(self, handle):\n        handle.getValueState('n', '')",
        one="class Stage:\n    def answer(self, key, kept: State | None):\n        kept.load(key)",
        two="class Other:\n    def __init__(self, h):\n        self._kept = State(h)\n"
        "    def answer(self, key):\n        self._kept.load(key)",
        three="def answer(state: State):\n    state.load(1)",
        passes="class Passes:\n    def __init__(self, h):\n        self._kept = State(h)\n"
        "    def answer(self, stage):\n        stage.answer(1, self._kept)",
        another="class Another:\n    def load(self, state: str):\n        state.load(1)",
    )
    assert measure.stages(measure.modules(root)) == ["one.Stage", "three", "two.Other"]
    with pytest.raises(LookupError, match="getValueState"):
        measure.stages([module for module in measure.modules(root) if module.name != "state"])


def test_plans_are_built_where_a_stage_by_key_or_a_result_is_made(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        engine=RESULT + "def build(rows):\n    return SparkResult(rows.mapInArrow(f, schema))",
        stateful="def build(rows):\n    return rows.groupBy('key').transformWithStateInPandas(processor)",
        once="def build(rows):\n    return rows.groupBy('key').applyInArrow(f, schema)",
        maps="def passed(rows):\n    return rows.mapInArrow(f, schema)",
        probe="def run(rows):\n    return rows.groupBy('key').transformWithStateInPandas(processor)",
    )
    assert measure.plan_builders(measure.modules(root)) == ["engine", "once", "stateful"]
    with pytest.raises(LookupError, match="SparkResult"):
        measure.plan_builders([module for module in measure.modules(root) if module.name != "engine"])


@pytest.mark.parametrize(
    "body",
    [
        "def take(self, index):\n        return Rows(self.a[index], self.b.take(index))",
        "def part(self, begin, end):\n        return type(self)(self.a[begin:end], self.b.slice(begin, end))",
        "def kept(self, mask):\n        return replace(self, b=self.b.filter(pa.array(mask)))",
        "def of(self, index):\n        return Rows(*gather(self.a, self.b, index))",
        "def take(self, index):\n        return Rows(**{n: column[index] for n, column in self.columns()})",
        "@staticmethod\n    def after(parts):\n        return Rows(np.concatenate([part.a for part in parts]), None)",
        "@classmethod\n    def after(cls, parts):\n        return cls(pa.concat_arrays(p.a for p in parts), None)",
    ],
)
def test_batches_cut_or_joined_by_hand(tmp_path: Path, body: str) -> None:
    source = measure.modules(package(tmp_path, rows=f"class Rows:\n    a: Array\n    b: Array\n    {body}"))
    assert measure.batch_classes(source) == ["rows.Rows"]


def test_functions_cut_batches_too(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        base="class Rows:\n    a: Array",
        cuts="from appulse.base import Rows\ndef taken(rows: Rows, at) -> Rows:\n    return Rows(rows.a[at])",
        joins="from appulse.base import Rows\n"
        "def joined(rows: Sequence[Rows]) -> Rows:\n    return Rows(np.concatenate([one.a for one in rows]))",
    )
    assert measure.batch_classes(measure.modules(root)) == ["base.Rows"]


@pytest.mark.parametrize(
    "body",
    [
        "def scaled(self, factor):\n        return Rows(self.a * factor, self.b)",
        "def first(self):\n        return Rows(self.a[:1], self.b[:1])",
        "def at(self, index):\n        return self.a[index]",
        "@staticmethod\n    def of(meaning):\n        return Rows(meaning['a'], meaning['b'])",
        "@staticmethod\n    def mean(parts):\n        return Rows(np.mean([part.a for part in parts]), None)",
    ],
)
def test_what_cuts_no_batch(tmp_path: Path, body: str) -> None:
    assert measure.batch_classes(measure.modules(package(tmp_path, rows=f"class Rows:\n    {body}"))) == []


def test_batches_are_of_one_kind() -> None:
    found = measure.batch_classes(measure.modules(measure.ROOT / "src" / "appulse"))
    assert found == ["model.batch.Ragged"], "Make these subclasses of appulse.model.batch.Batch."


def test_trips_count_functions_files_and_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package(
        tmp_path,
        low="def twice(x):\n    return sum(y for y in [x, x])",
        high="from pack.low import twice\ndef run():\n    return [twice(1), twice(2)] + own()\n"
        "def own():\n    return sorted([3], key=lambda x: x)",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from pack.high import run  # type: ignore[import-not-found]

    assert trips.travelled(lambda: lambda: len(run()), str(root)) == (3, 2, 2)  # run, twice, twice, own
    with pytest.raises(RuntimeError, match="no answers"):
        trips.travelled(lambda: lambda: 0, str(root))


@pytest.mark.parametrize("name", trips.CALLS)
def test_calls_of_each_kind_have_answers(name: str) -> None:
    assert min(trips.travelled(trips.CALLS[name])) > 0
