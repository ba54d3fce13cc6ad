"""The panel: form, runs and results together; all that it shows comes from run folders, and none of it is markup."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.live.making import Settings, run_folder
from workbench.core.formats import escape_html
from workbench.live import panel as panels
from workbench.live import result_widgets
from workbench.live.panel import Panel, find_notebook, get_panel
from workbench.runs import current_run

NOTEBOOKS = ROOT / "tests" / "fakes" / "notebooks"
CELL = {"left": 1, "label": "of the cell"}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return Path(shutil.copy(NOTEBOOKS / "01_adds.ipynb", tmp_path))


def made(notebook: Path, out: Path) -> Panel:
    return Panel("adds", Settings, CELL, notebook=notebook, out=out)


def test_a_bad_value_is_told_beneath_its_field_and_nothing_can_be_run(notebook: Path, tmp_path: Path) -> None:
    panel = made(notebook, tmp_path)
    panel.form.inputs["label"].value = "x"
    assert not panel.bar.run.disabled
    panel.model = type("Strict", (Settings,), {"__annotations__": {"label": int}})
    panel.form.inputs["label"].value = "<b>y</b>"
    assert panel.bar.run.disabled
    assert "&lt;b&gt;y" in panel.form.problems["label"].value


def test_a_chosen_run_gives_its_settings_to_the_form_and_shows_what_it_found(notebook: Path, tmp_path: Path) -> None:
    run_folder(tmp_path, left=7, label="seven")
    panel = made(notebook, tmp_path)
    panel.grid.selected = 0
    assert panel.read_values() == {"left": 7, "label": "seven"}
    assert "a report" in panel.results.report.value
    (grid,) = panel.results.place.children
    assert [column["label"] for column in grid.table["columns"]] == ["operator", "time (s)"]
    assert panel.command.text.startswith(f"workbench run {notebook} -p ")
    assert "-p left=7" in panel.command.text


def test_the_last_finished_run_is_offered_after_a_restart(notebook: Path, tmp_path: Path) -> None:
    assert made(notebook, tmp_path).last.layout.display == "none"
    run_folder(tmp_path, left=7, label="seven")
    panel = made(notebook, tmp_path)
    assert panel.last.layout.display == ""
    panel.last.click()
    assert panel.read_values() == {"left": 7, "label": "seven"}
    panel.back.click()
    assert panel.read_values() == CELL


def test_a_run_of_another_version_gives_what_is_still_known(notebook: Path, tmp_path: Path) -> None:
    run_folder(tmp_path, left=7, gone=1)
    panel = made(notebook, tmp_path)
    panel.grid.selected = 0
    assert panel.read_values()["left"] == 7
    assert "no longer has: gone" in panel.reading.value


def test_everything_from_a_run_is_escaped(notebook: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path, answer=EVIL, label=EVIL)
    run.report.write_text(f'"><script>parent.alert(1)</script>{EVIL}')
    run.record |= {"reasons": [EVIL], "verdict": EVIL, "status": EVIL}
    run.save()
    panel = made(notebook, tmp_path)
    panel.grid.selected = 0
    panel.form.set_values({"label": EVIL})
    shown = [panel.results.heading.value, panel.reading.value, panel.bar.sentence.value]
    assert [text for text in shown if "<script" in text or "<img" in text] == []
    frame = panel.results.report.value
    assert frame.count("<") == 2  # the frame and its end: the page is text within an attribute
    # Never `allow-same-origin`, nor `allow-top-navigation`.
    allowed = "allow-scripts allow-downloads allow-popups allow-popups-to-escape-sandbox"
    assert f'sandbox="{allowed}"' in frame
    start = '<base href="about:srcdoc"><meta http-equiv="Content-Security-Policy" content="default-src '
    assert f'srcdoc="{escape_html(start)}' in frame


def test_a_failed_run_says_why_in_place_of_an_answer(tmp_path: Path) -> None:
    run = run_folder(tmp_path, answer=None)
    run.end("failed", {"cell_number": 2, "source": "x", "error_name": "ValueError", "error": EVIL})
    said = result_widgets.render_run_headline(run)
    assert "ValueError: &lt;script" in said
    assert "failed" in said


def test_a_table_that_is_no_table_says_so(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    (run.tables_folder / "broken.parquet").write_text("x")
    assert [name for name, _ in result_widgets.list_run_tables(run)] == ["broken", "operators"]
    assert "wb-problem" in result_widgets.create_table_widget(run.tables_folder / "broken.parquet").value


def test_a_huge_report_is_not_put_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_widgets, "MAX_REPORT_BYTES", 10)
    assert "iframe" not in result_widgets.render_report_frame(run_folder(tmp_path))


def test_a_report_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    run = run_folder(tmp_path)
    run.report.unlink()
    os.mkfifo(run.report)
    assert "not a regular file" in result_widgets.render_report_frame(run)


def test_the_panel_keeps_its_values_until_the_cell_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(panels, "_panels", {})
    first = get_panel("adds", Settings, CELL)
    first.form.inputs["label"].value = "changed"
    again = get_panel("adds", Settings, CELL)
    assert again.read_values()["label"] == "changed"
    assert get_panel("adds", Settings, CELL | {"left": 3}).read_values() == CELL | {"left": 3}


def test_a_change_after_the_cell_ran_is_told(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr("IPython.display.display", lambda thing, **_: shown.append(thing))
    panel = made(notebook, tmp_path)
    panel.show()
    assert len(shown) == 1
    panel.form.inputs["label"].value = "changed"
    assert "Changed since this cell ran: label" in panel.reading.value


def test_the_notebooks_file_is_the_one_that_jupyter_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("01_adds.ipynb", "01_adds-Copy1.ipynb", "_adds.ipynb"):
        (tmp_path / name).write_text("{}")
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert find_notebook("adds", tmp_path) == tmp_path / "01_adds.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", "/elsewhere/01_adds-Copy1.ipynb")
    assert find_notebook("adds", tmp_path) == tmp_path / "01_adds-Copy1.ipynb"
    assert find_notebook("none", tmp_path / "..") is None


def test_a_report_that_the_server_serves_is_linked_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder(tmp_path)
    assert result_widgets.find_report_url(run) == ""
    monkeypatch.setenv(result_widgets.SERVED_FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(result_widgets.SERVED_URL_VARIABLE, "/hub/workbench-runs")
    url = f"/hub/workbench-runs/adds/{run.run_id}/report.html"
    assert result_widgets.find_report_url(run) == url
    assert f'href="{url}" target="_blank"' in result_widgets.render_run_headline(run)
    monkeypatch.setenv(result_widgets.SERVED_FOLDER_VARIABLE, str(tmp_path / "elsewhere"))
    assert "<code>" in result_widgets.render_run_headline(run)


@pytest.fixture
def shown(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Panel:
    """A panel above cells that have run with its settings."""
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path))
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    panel = made(notebook, tmp_path)
    panel.show()
    panel.notice_live_run()
    assert panel.grid.table["texts"] == []
    run = current_run("adds", config=CELL)
    panel.notice_live_run()
    assert "running, by hand" in panel.grid.table["texts"][0]
    run.conclude("valid", answer="2.")
    panel.notice_live_run()
    return panel


def test_a_run_by_hand_is_listed_when_it_ends(shown: Panel) -> None:
    (row,) = shown.grid.table["texts"]
    assert row[1:3] == ["succeeded, by hand", "valid"]
    assert shown.bar.toolbar.outdated == {}


def test_an_answer_of_other_settings_says_so(shown: Panel) -> None:
    shown.form.set_values({"left": 7})
    told = shown.bar.toolbar.outdated
    assert (told["title"], told["answer"]) == ("The form now has left = 7.", "")
    assert told["note"] == "Below: the cells as they last ran, with left = 1."
    shown.form.set_values(CELL)
    assert shown.bar.toolbar.outdated == {}


def test_the_answer_of_the_run_that_ended_or_is_chosen_stands_above_the_old_one(shown: Panel, tmp_path: Path) -> None:
    ended = run_folder(tmp_path, answer="9.", left=7, label="of the cell")
    shown._on_run_end(ended)
    told = shown.bar.toolbar.outdated
    assert told["answer"] == "9."
    assert told["title"].endswith("with left = 7")
    shown.choose_run(run_folder(tmp_path, answer="5.", left=1, label="of the cell"))
    assert shown.bar.toolbar.outdated == {}  # the same settings as the cells
    # The cells run again: their answer is the newest, and no other run is shown.
    shown.choose_run(ended)
    current_run("adds", config=CELL).conclude("valid", answer="2.")
    shown.notice_live_run()
    assert shown.results.run is None
