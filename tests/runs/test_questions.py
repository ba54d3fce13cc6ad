"""Questions about runs by the Model Context Protocol: equal to the tables, read only, nothing outside of the place."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.kept_runs import kept
from workbench.runs import catalogue, run_folder
from workbench.runs.question_server import build_server
from workbench.runs.questions import RunQuestions

mcp = pytest.importorskip("mcp")
SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run_folder.RUN_DIR_VARIABLE, raising=False)


def ask(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Results of calls of tools, of one client after the other."""

    async def talk() -> list[Any]:
        async with mcp.Client(server) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(talk())


def list_figures() -> list[tuple[str, str, str, dict[str, Any], dict[str, Any]]]:
    """Run, table, column, key values and row of 20 figures with intervals, from the shipped runs' files."""
    found = []
    for run in sorted(catalogue.list_runs(SAMPLES), key=lambda run: run.run_id):
        n_before = len(found)
        for name in run.list_table_names():
            entry = run.table_entry(name)
            path = Path(run.place) / "tables" / f"{name}.parquet"
            if not entry.get("intervals") or not entry.get("key") or not path.is_file():
                continue
            for row in pl.read_parquet(path).iter_rows(named=True):
                for column, (low, high) in entry["intervals"].items():
                    if row[column] is not None and len(found) < n_before + 6:
                        key = {part: row[part] for part in entry["key"]}
                        expected = {"value": row[column], "low": row[low], "high": row[high]}
                        found.append((run.run_id, name, column, key, expected))
    return found[:20]


def test_twenty_figures_of_shipped_runs_equal_the_tables() -> None:
    figures = list_figures()
    assert len(figures) == 20
    calls = [
        ("read_figure", {"run": run, "table": table, "column": column, "where": key})
        for run, table, column, key, _ in figures
    ]
    for result, (run, *_, expected) in zip(ask(build_server(SAMPLES), *calls), figures, strict=True):
        assert not result.is_error, result.content
        answer = result.structured_content
        assert {name: answer[name] for name in expected} == expected
        stored = next(one for one in catalogue.list_runs(SAMPLES) if one.run_id == run)
        assert (answer["verdict"], answer["reasons"]) == (stored.record["verdict"], stored.record["reasons"])


def test_every_tool_says_that_it_only_reads(tmp_path: Path) -> None:
    async def list_tools() -> Any:
        async with mcp.Client(build_server(tmp_path)) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(list_tools())
    assert {tool.name for tool in tools} == {
        "list_runs", "show_run", "describe_table", "read_rows", "read_figure", "compare_runs", "show_history"
    }  # fmt: skip
    assert all(tool.annotations.read_only_hint and not tool.annotations.destructive_hint for tool in tools)
    assert all(len(tool.description) > 40 for tool in tools)


@pytest.mark.parametrize("name", ["..", "../speedup", "/etc", "s3://bucket/run", "C:\\runs", ""])
def test_no_name_leads_outside_of_the_place(tmp_path: Path, name: str) -> None:
    kept(tmp_path / "inside")
    outside = kept(tmp_path / "outside")
    (result, by_id) = ask(
        build_server(tmp_path / "inside"), ("show_run", {"run": name}), ("show_run", {"run": outside.run_id})
    )
    assert result.is_error
    assert by_id.is_error


def test_questions_change_no_file(tmp_path: Path) -> None:
    runs = [kept(tmp_path) for _ in range(2)]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    ids = [run.run_id for run in runs]
    where = {"operator": "Sort"}
    results = ask(
        build_server(tmp_path),
        ("list_runs", {}),
        ("show_run", {"run": ids[0]}),
        ("describe_table", {"run": ids[0], "table": "factors"}),
        ("read_rows", {"run": ids[0], "table": "factors", "where": where, "sort_by": "factor"}),
        ("read_figure", {"run": ids[0], "table": "factors", "column": "factor", "where": where}),
        ("compare_runs", {"baseline": ids[0], "candidate": ids[1]}),
        ("show_history", {"area": "speedup"}),
    )
    assert [result.is_error for result in results] == [False] * 7
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_errors_say_what_is_allowed(tmp_path: Path) -> None:
    run = kept(tmp_path, verdict="invalid").run_id
    missing, column, several, value = ask(
        build_server(tmp_path),
        ("read_figure", {"run": run, "table": "factor", "column": "factor"}),
        ("read_figure", {"run": run, "table": "factors", "column": "speed", "where": {"operator": "Sort"}}),
        ("read_figure", {"run": run, "table": "factors", "column": "factor"}),
        ("read_rows", {"run": run, "table": "factors", "where": {"n": "22"}}),
    )
    texts = [result.content[0].text for result in (missing, column, several, value)]
    assert "allowed: factors" in texts[0]
    assert "operator, factor" in texts[1]
    assert "3 rows" in texts[2]
    assert "where: operator" in texts[2]
    assert "allowed: Int64" in texts[3]


def test_an_invalid_run_says_so_with_every_figure(tmp_path: Path) -> None:
    run = kept(tmp_path, verdict="invalid").run_id
    told = RunQuestions(tmp_path).read_figure(run, "factors", "factor", {"operator": "Window"})
    assert (told["value"], told["low"], told["verdict"], told["reasons"]) == (None, None, "invalid", ["few queries"])


@pytest.mark.live
def test_the_command_speaks_on_standard_input_and_output(tmp_path: Path) -> None:
    kept(tmp_path)
    command = mcp.StdioServerParameters(command=sys.executable, args=["-m", "workbench", "mcp", "--out", str(tmp_path)])
    (result,) = ask(command, ("list_runs", {}))
    assert result.structured_content["n_runs"] == 1
