"""The guide's pipeline, thresholds and words, as they stand on its page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.kept_runs import kept
from tests.test_documents import BLOCK, ROOT
from workbench.execution import runner
from workbench.runs import catalogue, run_folder, threshold_gate, thresholds

PAGE = ROOT / "docs" / "guide" / "runs.md"
FILE = ROOT / "docs" / "guide" / "thresholds.yaml"
LOG = ROOT / "data" / "samples" / "eventlogs" / "tpch_sf0.1.zstd"


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE.read_text()) if found == language]


def table_below(heading: str) -> set[str]:
    """The code spans in the first column of the table below a heading."""
    part = PAGE.read_text().split(heading)[1].split("\n\n")[1]
    return {span for line in part.splitlines() for span in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_the_rules_on_the_page_are_those_of_the_shipped_file() -> None:
    shown = yaml.safe_load(blocks("yaml")[0])
    assert shown["profile"] == yaml.safe_load(FILE.read_text())["profile"]
    assert {"start_here", "profile"} == set(thresholds.load_thresholds(FILE).areas)


def test_the_comparison_on_the_page_is_judged_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)
    before = kept(tmp_path / "made", [("Filter", 2.0, 1.9, 2.1), ("Sort", 2.0, 1.9, 2.1)])
    before.folder.rename(tmp_path / "baseline")
    path = tmp_path / "thresholds.yaml"
    path.write_text(blocks("yaml")[1])
    after = kept(tmp_path / "made", [("Filter", 2.0, 1.9, 2.1), ("Sort", 1.5, 1.4, 1.6)])
    found = threshold_gate.load_gate(path, ["speedup"], [], tmp_path).check_run(catalogue.build_stored_run(after))
    assert found is not None
    assert (found["broken"], found["rules"][0]["broken_rows"]) == (1, 1)


@pytest.mark.notebook
def test_the_pipeline_on_the_page_fails_when_a_limit_is_passed(tmp_path: Path) -> None:
    (script,) = blocks("bash")
    (tmp_path / "job.sh").write_text(script)
    rules = yaml.safe_load(FILE.read_text())
    rules["profile"][-1]["at_most"] = 0.5
    (tmp_path / "thresholds.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "workbench"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m workbench "$@"\n')
    command.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "EVENT_LOG": str(LOG)}
    done = subprocess.run(["sh", "job.sh"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (run,) = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert run["exit_code"] == 1
    assert [rule["outcome"] for rule in run["thresholds"]["rules"]] == ["passed"] * 3 + ["broken"]
    page, gallery = Path(run["report"]).read_text(), (tmp_path / "runs" / "index.html").read_text()
    told = "1 of 4 thresholds broken"
    assert told in gallery
    # Near the verdict: before the key numbers and the first chart.
    assert page.index(told) < page.index('class="wb-keys"')


def test_every_field_of_the_summary_and_of_a_run_folder_is_in_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)
    document: dict[str, Any] = runner.RunResult(Path("x.ipynb"), kept(tmp_path)).build_document()
    assert table_below("a run an entry:") == set(document)
    listed = {run_folder.RECORD_FILE, run_folder.PROGRESS_FILE, "run.lock", "report.ipynb", "report.html"}
    assert all(f"| `{name}`" in PAGE.read_text() for name in listed)


def test_every_limit_is_in_the_table() -> None:
    text = PAGE.read_text()
    assert [name for name in thresholds.LIMIT_NAMES if f"`{name}" not in text] == []
    assert [name for name in thresholds.RECORD_KEYS if f"`{name}`" not in text] == []
