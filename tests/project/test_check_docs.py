from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import check_docs

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
# A page

See [the other](docs/other.md#there), [the web](https://example.org) and `src/appulse/mod.py`.

```python
x = 1
```

- in a list

  ```python
  def twice(n):
      return 2 * n
  assert twice(x) == 2
  ```

```python
print("first")
print(x, "and ", end="\\n\\n")
```

```text
...
1 and
```

```python
print(x)
```

It prints something.

```text
nothing like it
```

```python no-run
x = undefined
```

```toml
[a](nowhere.md)
```

`tests/test_mod.py::test_it[case]`, `appulse.mod.Thing.method`, `appulse.mod`, `appulse.json`, `[not](a-link.md)`.
"""


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout with a little code and one good page."""
    for name, text in {
        "README.md": GOOD,
        "docs/other.md": "Back to [the first](../README.md).\n",
        "src/appulse/__init__.py": "from appulse.mod import Thing as Public\n",
        "src/appulse/mod.py": "class Thing:\n    def method(self): ...\n",
        "tests/test_mod.py": "def test_it(): ...\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    return tmp_path


def test_good_pages_pass(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_docs.main([]) == 0
    out = capsys.readouterr().out
    assert "README.md: 4 examples" in out
    assert out.endswith("2 pages, 0 wrong\n")
    assert sorted(path.name for path in checkout.iterdir()) == ["README.md", "docs", "src", "tests"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("See [it](docs/gone.md).", "README.md:1 the link to docs/gone.md leads nowhere"),
        ("![picture](docs/gone.png)", "README.md:1 the link to docs/gone.png leads nowhere"),
        ("[it]: docs/gone.md", "README.md:1 the link to docs/gone.md leads nowhere"),
        ("`tests/test_mod.py::test_gone`", "README.md:1 there is no `tests/test_mod.py::test_gone`"),
        ("`benchmarks/gone.py`", "README.md:1 there is no `benchmarks/gone.py`"),
        ("`appulse.gone`", "README.md:1 there is no `appulse.gone`"),
        ("`appulse.mod.Gone`", "README.md:1 there is no `appulse.mod.Gone`"),
        ("text\n```python\n\nassert 1 == 2\n```", "README.md:4 an example failed"),
        ("```python\nx = 1\n```\n\n```python\nprint(y)\n```", "README.md:6 an example failed"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "README.md:3 an example failed"),
        ("```python\nprint(1)\n```\n```text\n```", "it printed:\n1\nand the page shows:\n\n"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    checkout: Path, capsys: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    (checkout / "README.md").write_text(line)
    assert check_docs.main([]) == 1
    assert told in capsys.readouterr().out


def test_examples_that_do_not_end_are_told(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_docs, "PATIENCE", 0.5)
    (checkout / "README.md").write_text("```python\nimport time; time.sleep(60)\n```\n")
    assert check_docs.main([]) == 1
    assert "had not ended" in capsys.readouterr().out


def test_page_that_is_not_there_is_told(checkout: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no .*gone\.md"):
        check_docs.main([str(checkout / "gone.md")])
