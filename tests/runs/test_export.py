"""Runs as pictures, Markdown, JUnit and PDF: whole, escaped, and without a path of the machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import nbformat
import polars as pl
import pytest
from typer.testing import CliRunner

from tests.fakes.kept_runs import kept
from workbench import charts
from workbench.charts.renderer import build_mime_bundle
from workbench.cli.app import app
from workbench.core.errors import ConfigError, MissingToolError
from workbench.report import display
from workbench.runs import export, run_folder
from workbench.runs.compare_page import build_result_cell

SECRET_PLACE = "/home/author/secret-project"
Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Export a run with two charts, texts that Markdown would read as marks, and paths of its author everywhere."""
    run = kept(tmp_path / "runs", config={"event_log": f"{SECRET_PLACE}/app.zstd"})
    frame = pl.DataFrame({"name": ["a", f"{SECRET_PLACE}/b.zstd"], "value": [1.0, 2.0]})
    drawn = [
        charts.bars(frame, title=f"{word} of {SECRET_PLACE}/c", label="name", value="value") for word in ("A", "B")
    ]
    key_numbers = [("GPUs | nodes", 19, "GPUs", f"of {SECRET_PLACE}/d.json")]
    shown = display.headline(answer="x", question="How many for @all?", key_numbers=key_numbers)
    cells = [build_result_cell("show()", shown, *(build_mime_bundle(chart.to_dict()) for chart in drawn))]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), run.folder / "report.ipynb")
    rules = [{"rule": "duration_s at most 1", "outcome": "broken", "found": "2 | 3", "rows": 1, "broken_rows": 1}]
    run.record |= {
        "answer": f"19 GPUs <b>serve</b> *400* users of {SECRET_PLACE}/app.zstd.",
        "details": ["Checked with all 400 users."],
        "conditions": ["simulated service"],
        "command": f"workbench run sizing -p event_log={SECRET_PLACE}/app.zstd",
        "inputs": [{"path": f"{SECRET_PLACE}/app.zstd", "bytes": 10, "sha256": "ab" * 32}],
        "thresholds": {"file": "t.yaml", "passed": 0, "broken": 1, "refused": 0, "rules": rules},
    }
    run.save()

    def export_it(*words: str, raised: type[Exception] | None = None) -> Any:
        done = CliRunner().invoke(app, ["runs", "export", run.run_id, "--runs", str(tmp_path / "runs"), *words])
        assert (done.exit_code == 0) == (raised is None), done.output
        assert raised is None or isinstance(done.exception, raised)
        return done

    return export_it


def test_markdown_holds_answer_verdict_key_numbers_and_origin_and_escapes_marks(call: Call) -> None:
    text = call("--markdown").stdout
    lines = text.splitlines()
    assert lines[0] == r"### 19 GPUs &lt;b&gt;serve&lt;/b&gt; \*400\* users of app.zstd."
    assert "speedup: **valid**, simulated service" in lines
    assert r"| GPUs \| nodes | 19 GPUs (of d.json) |" in lines
    assert r"| broken | duration_s at most 1 | 2 \| 3 |" in lines
    assert "workbench run sizing -p event_log=app.zstd" in lines
    assert "author" not in text
    # Outside of code each line of a table has as many unescaped bars as its head.
    tables = [line for line in lines if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in tables} <= {3, 4}


def test_junit_has_a_case_for_the_verdict_and_each_threshold(call: Call, tmp_path: Path) -> None:
    call("--junit", "--out", str(tmp_path / "junit.xml"))
    suite = ET.parse(tmp_path / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    verdict, rule = suite.findall("testcase")
    assert len(verdict.findall("failure")) == 0
    assert "19 GPUs" in (verdict.findtext("system-out") or "")
    assert rule.get("name") == "duration_s at most 1"
    assert rule.find("failure").get("message") == "2 | 3"  # type: ignore[union-attr]
    assert "author" not in (tmp_path / "junit.xml").read_text()


def test_a_chart_is_a_picture_or_a_drawing_by_its_number(call: Call, tmp_path: Path) -> None:
    call("--png", "--out", str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    first, second = call("--svg").stdout, call("--svg", "--chart", "2").stdout
    assert "A of c" in first
    assert "B of c" in second
    assert "author" not in first + second
    assert "1 to 2" in str(call("--svg", "--chart", "3", raised=ConfigError).exception)


@pytest.mark.parametrize("words", [[], ["--png", "--svg"], ["--markdown", "--chart", "2"]])
def test_what_makes_no_sense_is_refused(call: Call, words: list[str]) -> None:
    assert call(*words, raised=ConfigError).stdout == ""


def test_a_pdf_needs_a_browser_and_says_so(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    error = call("--pdf", "--out", str(tmp_path / "a.pdf"), raised=MissingToolError).exception
    assert not (tmp_path / "a.pdf").exists()
    assert "Chromium" in str(error)


@pytest.mark.skipif(not any(map(shutil.which, export.BROWSERS)), reason="no Chromium on PATH")
def test_a_pdf_is_printed(call: Call, tmp_path: Path) -> None:
    call("--pdf", "--out", str(tmp_path / "a.pdf"))
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("file:///home/author/a.zstd", "a.zstd"),
        ("~/logs/a.zstd and C:\\Users\\author\\a.zstd", "a.zstd and a.zstd"),
        ("-p logs=['/home/a/b.zstd','/home/a/c.zstd']", "-p logs=['b.zstd','c.zstd']"),
        ("s3://bucket/runs/a and https://a.b/c/d", "s3://bucket/runs/a and https://a.b/c/d"),
        ("4.2 pods/s, and/or 1/2, data/samples/a.zstd", "4.2 pods/s, and/or 1/2, data/samples/a.zstd"),
        ("/home/author/runs/", "runs"),
    ],
)
def test_absolute_paths_become_names_of_files(text: str, clean: str) -> None:
    assert export.remove_paths(text) == clean


def test_a_failed_run_is_an_error_and_one_without_a_verdict_is_skipped(tmp_path: Path) -> None:
    from workbench.runs.catalogue import open_run

    for status, kind in (("failed", "error"), ("succeeded", "skipped")):
        run = run_folder.start_run("speedup", tmp_path / status)
        run.end(status)  # type: ignore[arg-type]
        suite = ET.fromstring(export.format_junit(export.summarize_run(open_run(run.folder))))[0]
        assert [len(suite.findall(f"testcase/{one}")) for one in ("error", "skipped")] == [
            int(kind == "error"),
            int(kind == "skipped"),
        ]
