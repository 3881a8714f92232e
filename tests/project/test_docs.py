from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from appulse import errors
from appulse.jobs import validate
from appulse.model import defects
from tools import errors as error_pages
from tools import figures, licences, reference
from tools.measure import documented

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A path of the checkout in backticks, down to a test perhaps; other things in backticks are code.
PATH = re.compile(r"`((?:src|tests|benchmarks|docs|examples|tools)/[^`:]*)(?:::[^`]*)?`")
CLAIM = re.compile(r"(?:USJ-U|SN-S|UW-W|IDS-I|CQ-C)\d+")


def rows_of(page: str, columns: int) -> list[list[str]]:
    """The rows that begin with an id in the tables of the pages under a folder, as cells."""
    pages = sorted((ROOT / "docs" / page).glob("*.md"))
    lines = [line for one in pages for line in one.read_text(encoding="utf-8").splitlines()]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| [A-Z]+-", line)]
    assert all(len(row) == columns for row in rows)
    return rows


def test_the_reference_is_what_the_docstrings_say() -> None:
    assert reference.main(["--check"]) == 0


def test_a_reference_out_of_date_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "DOCS", tmp_path / "docs")
    assert reference.main(["--check"]) == 1
    assert "docs/reference.md is out of date" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    (tmp_path / "docs" / "reference" / "gone.md").write_text("of a topic that is no more")
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


def test_the_page_of_errors_is_what_the_code_says() -> None:
    assert error_pages.main(["--check"]) == 0, "python -m tools.errors writes it"


def test_every_reason_of_a_reject_has_a_cause_and_a_remedy() -> None:
    named = {value for name, value in vars(defects).items() if name.isupper() and isinstance(value, str)}
    assert set(defects.REASONS) == named - {defects.UNDECODED, defects.NOT_FILLED}  # a column, and a detail
    assert all(cause and remedy for cause, remedy in defects.REASONS.values())


def test_every_locked_requirement_has_a_licence_that_we_may_use() -> None:
    assert not list(licences.wrong())


def test_every_public_function_and_class_has_an_example() -> None:
    assert not [name for name, value in documented().items() if ">>>" not in (value.__doc__ or "")]


def test_every_named_error_is_on_the_page_and_the_refusal_of_spark_in_its_words() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert set(error_pages.named()) >= {name for name in errors.__all__ if name[0].isupper()}
    assert not [name for name in error_pages.named() if f"### `{name}`" not in page]
    assert "\nStream-stream join without equality predicate is not supported" in page


def test_the_ledger_has_each_item_once() -> None:
    ids = [row[0] for row in rows_of("papers", 6)]
    assert len(ids) > 300
    assert sorted(set(ids)) == sorted(ids)


def test_the_ledger_leaves_no_cell_blank() -> None:
    blank = [row[0] for row in rows_of("papers", 6) if not all(row)]
    assert not blank


def test_the_ledger_says_why_where_nothing_covers_an_item() -> None:
    unexplained = [row[0] for row in rows_of("papers", 6) if row[5] == "—"]
    assert not unexplained


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_in_backticks_exist(page: Path) -> None:
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert not [path for path in named if not (ROOT / path).exists()]


def test_every_claim_of_the_ledger_has_its_row_in_the_reproduction() -> None:
    claims = {row[0] for row in rows_of("papers", 6) if CLAIM.fullmatch(row[0])}
    rows = rows_of("reproduction", 6)
    assert sorted(claims) == sorted(row[0] for row in rows)
    assert {row[4] for row in rows} <= {"held", "held in part", "refuted", "later"}
    # A verdict has a figure and the command that prints it.
    assert not [row[0] for row in rows if row[4] != "later" and "—" in (row[3], row[5])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_job_files_in_the_docs_are_valid(page: Path, tmp_path: Path) -> None:
    jobs = re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for job in jobs:
        file = tmp_path / "job.toml"
        file.write_text(job, encoding="utf-8")
        assert validate(file) == []


def test_figures_are_those_of_the_last_json_object() -> None:
    log = 'noise\n{"vs_explode_1m": 1}\n[1, 2]\n{"vs_explode_1m": 12.5, "skew_max_over_mean": 1.5}\n17\n'
    run, found = figures.figures(log)
    assert (run.name, found) == ("time", {"vs_explode_1m": 12.5, "skew_max_over_mean": 1.5})
    table = figures.table(run, found)
    assert re.search(r"`vs_explode_1m`.*\| 12\.5 \|", table)
    assert table.count(figures.NOT_RUN) == len(run.meanings) - 2
    assert run.command in table


def test_the_names_of_figures_tell_the_run() -> None:
    for run in figures.RUNS:
        assert figures.figures(json.dumps(dict.fromkeys(run.meanings, 1)))[0] == run


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", "no JSON object"),
        ("17", "no JSON object"),
        ('{"speed": 1}', "unknown figures speed"),
        ('{"kills": 1, "rss_growth": 1}', "kills, rss_growth together"),
    ],
)
def test_a_run_without_figures_is_told(log: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        figures.figures(log)


def test_figures_replace_what_is_between_the_marks_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, log = tmp_path / "page.md", tmp_path / "log"
    run = figures.RUNS[0]
    page.write_text(f"before\n{run.begin}\nold\n{run.end}\nafter\n")
    log.write_text(f'{{"{next(iter(run.meanings))}": 0.9}}\n')
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- speed-ups -->\nold\n<!-- /speed-ups -->\nafter\n")
    monkeypatch.setattr(figures, "PAGE", page)
    monkeypatch.setattr(figures, "README", readme)
    monkeypatch.setattr(figures, "SPEED_UPS", ((run.name, next(iter(run.meanings)), "a job", "a rival"),))
    for _ in range(2):
        assert figures.main([str(log)]) == 0
        text = page.read_text()
        assert text.startswith(f"before\n{run.begin}\n\n| figure |")
        assert text.endswith(f"\n\n{run.end}\nafter\n")
        assert "\nold\n" not in text
        assert "| 0.9 |" in text
        assert "| a job | a rival | 0.9 x |" in readme.read_text()
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="is to have one"):
        figures.main([str(log)])


def test_pages_show_the_figures_there_are() -> None:
    page, readme = (path.read_text(encoding="utf-8") for path in (figures.PAGE, figures.README))
    for run in figures.RUNS:
        shown = page.split(run.begin)[1].split(run.end)[0]
        assert re.findall(r"^\| `(\w+)` \|", shown, re.MULTILINE) == list(run.meanings)
    assert figures.speed_ups(page) in readme
    assert figures.NOT_RUN not in figures.speed_ups(page)
