"""Commands on sample data at 80, 100 and 160 columns: no line too long, no number cut, no word broken."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.fakes.kept_runs import ROWS, kept
from workbench.cli.app import app
from workbench.console import screen, tables, terminal
from workbench.core.files import SHIPPED
from workbench.runs import run_folder

WIDTHS = (80, 100, 160)
MARKS = {"…", "Not", "shown:", "--wide", "shows", "all", "columns.", "whole", "texts."}
LEAGUE = "data/samples/scaletest/league/00-kai-scheduler"
NUMPY = "data/samples/indicators"
COMMANDS = (
    "runs list --out {runs}",
    "runs show speedup --out {runs}",
    "runs diff {first} {second}",
    "runs history speedup --out {runs}",
    "runs check {second} --thresholds {rules}",
    "runs prune --keep 0 --out {runs}",
    "doctor",
    "run sizing --parameters",
    "eventlog facts data/samples/eventlogs/small --out {out}/facts",
    f"scaletest show {LEAGUE}",
    "scaletest plan data/samples/scaletest/scenarios/bursts.yaml",
    "scaletest cluster recipes",
    "indicators recommend {out}/numpy",
    "run speedup profile --parameters",
    "scaletest compare data/samples/scaletest/default-and-kai",
    "capacity plan --sizing data/samples/capacity/sizing",
    "capacity plan --sizing data/samples/capacity/sizing --speedup data/samples/capacity/speedup",
    "forecast score --ledger data/samples/forecasts/ledger.jsonl --open",
    # By report.display.
    "speedup profile data/samples/eventlogs/small/three_queries.zstd",
    "speedup compare data/samples/speedup/tpch-sf1",
    "sizing import data/samples/sizing/aiperf/users --gpus 1 --out {out}/sweep",
    "scaletest trace data/samples/scaletest/traces/jobs.csv --out {out}/trace.yaml",
)
FIT = tables.format_cells
Table = tuple[list[list[str]], Sequence[str], dict[str, Any]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two runs of which two figures moved, thresholds, and a folder for what commands write."""
    folder = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)
        wide = [(f"an operator with a rather long name, number {number}", 1.0, 0.9, 1.2) for number in range(9)]
        first = kept(folder / "runs", [*ROWS, *wide])
        moved = [(name, *(None if one is None else 3 * one for one in ends)) for name, *ends in ROWS]
        second = kept(folder / "runs", [*moved, *((n, 1.1, 0.8, 1.3) for n, *_ in wide)], config={"top": 7})  # type: ignore[list-item]
    # This command writes into its session.
    shutil.copytree(SHIPPED / NUMPY / "numpy", folder / "numpy")
    (folder / "rules.yaml").write_text("speedup:\n  - {key: duration_s, at_most: 1000}\n")
    return {
        "runs": str(folder / "runs"),
        "first": str(first.folder),
        "second": str(second.folder),
        "rules": str(folder / "rules.yaml"),
        "out": str(folder),
    }


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Table]:
    """The tables that a command draws, whole."""
    found: list[Table] = []

    def note(columns: Sequence[Sequence[str]], headers: Sequence[str] = (), **options: Any) -> list[str]:
        found.append(([list(column) for column in columns], headers, options))
        return FIT(columns, headers, **options)

    for module in ("console.tables", "cli.run_output", "report.display", "scaletest.analysis.terminal_report"):
        monkeypatch.setattr(f"workbench.{module}.format_cells", note, raising=False)
    for module in ("scaletest.scenario.workload_plan",):
        monkeypatch.setattr(f"workbench.{module}.format_cells", note)
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_lines_fit_the_screen_and_numbers_and_words_are_whole(
    command: str, place: dict[str, str], drawn: list[Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SHIPPED)
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for module in (screen, terminal):
        monkeypatch.setattr(module, "is_terminal", lambda stream: True)
    done = CliRunner().invoke(app, shlex.split(command.format(**place)))
    assert done.exit_code in (0, 1), done.output
    assert done.stdout
    for line in done.stdout.splitlines():
        # A path or a command is to copy, and stays in one line.
        assert len(line) <= 80 or is_copied(line), line
    for columns, headers, options in drawn:
        for width in WIDTHS:
            check_table(columns, headers, options, width)


def is_copied(line: str) -> bool:
    words = line.split()
    return bool(screen._COPIED.match(line)) or max(map(len, words)) > 40 or "workbench " in line


def check_table(columns: list[list[str]], headers: Sequence[str], options: dict[str, Any], width: int) -> None:
    lines = FIT(columns, headers, **{**options, "width": width})
    assert max(map(tables.measure_width, lines), default=0) <= width
    whole = {word for text in (*headers, *(cell for column in columns for cell in column)) for word in text.split()}
    parts = {part for word in whole for part in re.findall(r"[^/,;=:]*[/,;=:]+|[^/,;=:]+", word)}
    strange = {word for line in lines for word in line.split()} - whole - MARKS
    # Long words are broken at their marks, and the line below names columns with commas between them.
    joined = {word for word in strange if set(re.findall(r"[^/,;=:]*[/,;=:]+|[^/,;=:]+", word)) <= parts}
    left = {word for word in strange - joined if word.rstrip(".,") not in whole}
    assert not left, left
