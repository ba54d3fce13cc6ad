"""Names and texts that come from logs, scripts and services try to run in the pages that show them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from nbformat import v4

from tests.browser import pages, samples
from tests.fakes import eventlogs as made
from workbench import report
from workbench.charts import theme
from workbench.report import gallery
from workbench.report import page as report_page
from workbench.runs import run_folder

pytestmark = pytest.mark.browser

SCRIPT = "<script>window.__pwned='script'</script>"
IMAGE = '"><img src=x onerror="window.__pwned=\'image\'">'
CLOSING = "</script><svg onload=\"window.__pwned='svg'\">"
LINK = "[click](javascript:window.__pwned='link')"
ADDRESS = "javascript:window.__pwned='address'"
EXPRESSION = "datum.constructor.constructor('window.__pwned=1')()"
TEMPLATE = "{{constructor.constructor('window.__pwned=1')()}}"
COMMENT = "<!--<script>--><style>@import url(//example.org/a.css)</style>"
ENTITY = "&lt;img src=x onerror=window.__pwned=1&gt;"
STEERING = "\x1b]0;pwned\x07\u202egnp.exe"
HOSTILE = [SCRIPT, IMAGE, CLOSING, LINK, ADDRESS, EXPRESSION, TEMPLATE, COMMENT, ENTITY, STEERING]
# Everything that a click on the page could start, and every dialog.
RUN_ALL = """() => { for (const one of document.querySelectorAll('a, summary, figure, img, td'))
    if (!one.closest('a[href]') || one.href?.startsWith('javascript')) one.click(); }"""


def with_hostile_names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All chart pieces, their categories and labels replaced."""
    monkeypatch.setattr(samples, "OPERATORS", HOSTILE[:7])

    def replaced(frame: pl.DataFrame) -> pl.DataFrame:
        for name in frame.columns:
            if frame[name].dtype == pl.String and name not in ("kind", "status", "predictor"):
                values = frame[name].unique(maintain_order=True).to_list()
                names = dict(zip(values, [HOSTILE[at % 10] for at in range(len(values))], strict=True))
                if len(set(names.values())) == len(names):
                    frame = frame.with_columns(pl.col(name).replace_strict(names))
        return frame

    for maker in ("factors", "latencies", "stages", "cells", "levels"):
        table = replaced(getattr(samples, maker)())
        monkeypatch.setattr(samples, maker, functools.partial(pl.DataFrame.clone, table))
    return samples.all_pieces()


def hostile_run(folder: Path, pieces: dict[str, Any]) -> Path:
    """A run whose every text is hostile: title, answer, key numbers, tables, charts, streams, errors, configuration."""
    theme.enable_theme()
    frame = pl.DataFrame({"operator": HOSTILE, SCRIPT: HOSTILE, "n": range(len(HOSTILE))})
    said = report.headline(
        answer=" ".join(HOSTILE), verdict="invalid", reasons=HOSTILE, key_numbers=[(SCRIPT, IMAGE, CLOSING, LINK)]
    )
    error = v4.new_output("error", ename=SCRIPT, evalue=IMAGE, traceback=HOSTILE)
    shown = [v4.new_code_cell(f"# {IMAGE}", outputs=[samples.shown(piece)]) for piece in pieces.values()]
    cells = [
        v4.new_markdown_cell(f"# Why {SCRIPT}{IMAGE}?\n\n{LINK} {COMMENT} <{ADDRESS}>"),
        v4.new_code_cell(SCRIPT, outputs=[samples.shown(said)]),
        *shown,
        v4.new_code_cell("t", outputs=[samples.shown(report.table(frame, caption=IMAGE))]),
        v4.new_code_cell("b", outputs=[samples.shown(report.bullets(HOSTILE))]),
        v4.new_code_cell("s", outputs=[v4.new_output("stream", text="\n".join(HOSTILE))]),
        v4.new_code_cell("h", outputs=[v4.new_output("display_data", data={"text/html": "".join(HOSTILE)})]),
        v4.new_code_cell("m", outputs=[v4.new_output("display_data", data={"text/markdown": " ".join(HOSTILE)})]),
        v4.new_code_cell("x", outputs=[error]),
    ]
    failure = {"cell_number": 2, "source": SCRIPT, "error_name": IMAGE, "error": CLOSING}
    place = samples.write_run(
        folder, cells, verdict="invalid", reasons=HOSTILE, answer=IMAGE, status="failed", failure=failure
    )
    run = run_folder.load_run(place)
    run.record |= {"title": SCRIPT + IMAGE, "config": {"event_log": IMAGE, SCRIPT: HOSTILE}, "command": CLOSING}
    run.save()
    return place


def assert_unharmed(seen: pages.Watched, texts: list[str]) -> None:
    page = seen.page
    page.evaluate(RUN_ALL)
    assert page.evaluate("window.__pwned") is None
    assert not page.evaluate("document.querySelectorAll('a[href^=javascript]').length")
    body = page.evaluate("document.documentElement.textContent")
    assert [text for text in texts if text not in body] == [], "what is shown stays readable as text"
    seen.assert_quiet()


def opened(seen: pages.Watched, path: Path) -> None:
    seen.page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    seen.open(path)


@pytest.mark.smoke
def test_hostile_texts_in_every_place_of_a_report_run_nothing(
    browser: Any, tmp_path: Path, shots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hostile_run(tmp_path, with_hostile_names(monkeypatch))
    path = report_page.write_report(place)
    with pages.watched(browser) as seen:
        opened(seen, path)
        figures = seen.page.locator("figure.chart").count()
        assert figures == 8
        for figure in range(figures):
            # Tooltips are made of the data, and shown as HTML.
            box = seen.page.locator(f"#chart-{figure} .canvas").bounding_box()
            assert box is not None
            seen.page.locator(f"#chart-{figure} .canvas").hover(
                position={"x": box["width"] / 2, "y": box["height"] / 2}
            )
        assert_unharmed(seen, [SCRIPT, IMAGE, TEMPLATE])
        seen.page.screenshot(path=shots / "report-hostile.png", full_page=True)


def test_a_gallery_of_hostile_runs_runs_nothing(
    browser: Any, tmp_path: Path, shots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hostile_run(tmp_path / "a b & 'c' \"d\" <i>", {"forest": with_hostile_names(monkeypatch)["forest"]})
    report_page.write_report(place)
    broken = tmp_path / "<img src=x onerror=window.__pwned=1>"
    broken.mkdir()
    (broken / "run.json").write_text('{"format_version": "<script>window.__pwned=1</script>"}')
    with pages.watched(browser) as seen:
        opened(seen, gallery.write_gallery(tmp_path))
        assert_unharmed(seen, [IMAGE])
        seen.page.screenshot(path=shots / "gallery-hostile.png", full_page=True)
        seen.page.click(".card h3 a")
        pages.wait_drawn(seen.page)
        assert seen.page.evaluate("window.__pwned") is None


def hostile_log(path: Path) -> Path:
    """A real kind of log in which every name is hostile."""
    events: list[Any] = [
        made.log_start(),
        made.application_start(user=SCRIPT, name=SCRIPT + IMAGE),
        made.environment({"spark.app.name": IMAGE, SCRIPT: CLOSING}),
        made.executor_added(executor_id=IMAGE, host=SCRIPT),
    ]
    for number, text in enumerate((SCRIPT, IMAGE)):
        start = made.sql_start(number, made.plan(text, metrics={7 + number: CLOSING}))
        start |= {"description": text, "details": CLOSING}
        stage = made.stage_submitted(number, tasks=1, name=text)
        job = made.job_start(number, [number], {"spark.sql.execution.id": str(number), "spark.job.description": text})
        events += [start, job, stage, made.task_start(number), made.task_end(number), made.stage_completed(number)]
        events += [made.job_end(number), made.sql_end(number, error=CLOSING + text)]
    events += [made.executor_removed(executor_id=IMAGE, reason=SCRIPT), made.application_end()]
    path.write_bytes(made.dump(*events))
    return path


@pytest.mark.notebook
def test_the_report_of_a_log_with_hostile_names_runs_nothing(browser: Any, tmp_path: Path, shots: Path) -> None:
    log = hostile_log(tmp_path / "log")
    command = [
        sys.executable,
        "-m",
        "workbench",
        "run",
        "profile",
        "-p",
        f"event_log={log}",
        "--out",
        str(tmp_path / "o"),
    ]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    assert "\x1b" not in done.stdout
    (path,) = (tmp_path / "o").rglob("report.html")
    with pages.watched(browser) as seen:
        opened(seen, path)
        assert_unharmed(seen, [SCRIPT])
        seen.page.screenshot(path=shots / "report-hostile-log.png", full_page=True)
