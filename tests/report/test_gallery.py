from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from nbformat import v4

from tests.browser import samples
from workbench.charts import theme
from workbench.core.errors import InputError
from workbench.report import gallery, page


@pytest.fixture(autouse=True)
def own_theme() -> None:
    theme.enable_theme()


def cells(question: str, chart: Any = None) -> list[Any]:
    outputs = [samples.shown(chart)] if chart is not None else []
    return [v4.new_markdown_cell(f"# {question}"), v4.new_code_cell("draw()", outputs=outputs)]


def made(folder: Path, question: str, *, chart: Any = None, started_at: str = "", **options: Any) -> Path:
    run = samples.write_run(folder, cells(question, chart), **options)
    if started_at:
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(record | {"started_at": started_at}))
    page.write_report(run)
    return run


def test_every_run_is_a_card_with_picture_answer_verdict_and_link(tmp_path: Path) -> None:
    run = made(tmp_path, "How <fast>?", chart=samples.all_pieces()["forest"], verdict="valid", answer="2 & more")
    html = gallery.write_gallery(tmp_path).read_text()
    assert "How &lt;fast&gt;?" in html
    assert "2 &amp; more" in html
    assert 'wb-valid">valid<' not in html, "what is as it should be needs no chip"
    assert 'data-verdict="valid"' in html
    assert f'href="speedup/{run.name}/report.html"' in html
    assert html.count('src="data:image/png;base64,') == 2, "one for the light page, one for the dark"
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", html)
    assert str(tmp_path) not in html


def test_older_runs_of_a_notebook_are_folded_below_the_newest(tmp_path: Path) -> None:
    old = made(tmp_path, "Q?", started_at="2026-01-01T10:00:00Z", verdict="valid", answer="old answer")
    new = made(tmp_path, "Q?", started_at="2026-02-01T10:00:00Z", verdict="valid", answer="new answer")
    made(tmp_path, "Other?", area="sizing", started_at="2026-03-01T10:00:00Z")
    html = gallery.write_gallery(tmp_path).read_text()
    assert html.count('<li class="card" ') == 2
    assert [html.count(f'data-area="{area}"') for area in ("sizing", "speedup")] == [1, 1]
    assert (
        html.index("Other?")
        < html.index('data-area="speedup"')
        < html.index("new answer")
        < html.index("1 older run")
        < html.index("old answer")
    )
    assert html.index(new.name) < html.index(old.name)


def test_failed_runs_are_shown_as_such(tmp_path: Path) -> None:
    made(
        tmp_path,
        "Q?",
        status="failed",
        failure={"cell_number": 1, "source": "", "error_name": "ValueError", "error": "x"},
    )
    html = gallery.write_gallery(tmp_path).read_text()
    assert 'wb-failed">failed<' in html
    assert "ValueError" in html


def test_a_broken_run_is_listed_with_its_reason_and_hides_no_other(tmp_path: Path) -> None:
    made(tmp_path, "Q?")
    broken = tmp_path / "speedup" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{ half")
    html = gallery.write_gallery(tmp_path).read_text()
    assert "Runs that could not be read" in html
    assert "speedup/broken" in html
    assert '<li class="card" ' in html


def test_a_run_without_notebook_or_report_has_no_link(tmp_path: Path) -> None:
    run = samples.write_run(tmp_path, cells("Q?"))
    (run / "report.ipynb").unlink()
    html = gallery.write_gallery(tmp_path).read_text()
    assert "report.html" not in html
    assert "no chart" in html


def test_spaces_and_signs_in_folder_names_make_working_links(tmp_path: Path) -> None:
    made(tmp_path / "my runs #1", "Q?")
    assert 'href="my%20runs%20%231/speedup/' in gallery.write_gallery(tmp_path).read_text()


def test_no_folder_and_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no runs"):
        gallery.write_gallery(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        gallery.write_gallery(tmp_path / "absent")
    assert not (tmp_path / "index.html").exists()
