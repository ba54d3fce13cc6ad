from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyperf
import pytest
from typer.testing import CliRunner, Result

from tests.indicators.store import making
from tests.indicators.store.server import free_port
from workbench.core.errors import WorkbenchError
from workbench.indicators.command import app
from workbench.indicators.store.archive import inspection_id, result_path

STDOUT = {
    "name": "PiMatmul",
    "component": "pytorch",
    "@parameters": {"dtype": "float32", "device": "cpu", "reps": 2000, "matrix_size": 512},
    "@result": {"rate": 422.0, "elapsed": 0.6355},
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path / "out"))
    monkeypatch.delenv("WORKBENCH_DATABASE_URL", raising=False)


@pytest.fixture
def filled(tmp_path: Path) -> tuple[str, str]:
    """The options that name a database of one session."""
    making.archive(tmp_path / "a", making.session(stop_reason="\x1b[2Jgone"))
    call("sync", "a", "--database", "x.db")
    return "--database", "x.db"


def call(*arguments: str | Path) -> Result:
    found = CliRunner().invoke(app, list(map(str, arguments)))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def refused(*arguments: str | Path) -> WorkbenchError:
    with pytest.raises(WorkbenchError) as error:
        call(*arguments)
    return error.value


def test_sync_counts_and_a_second_one_changes_nothing(tmp_path: Path) -> None:
    making.archive(tmp_path / "a")
    assert "12 documents: 12 inserted, 0 existed, 0 failed" in call("sync", "a").stdout
    told = json.loads(call("sync", "a", "--json").stdout)
    assert (told["synced"], told["skipped"], told["failed"]) == (0, 12, 0)
    assert (tmp_path / "out" / "indicators.db").is_file()


def test_a_damaged_document_is_named_and_strict_makes_it_a_failure(tmp_path: Path) -> None:
    session = making.archive(tmp_path / "a")
    path = result_path(tmp_path / "a", inspection_id("s-1", "2.2.6", session.cases[0].label), 0)
    path.write_text("{")
    loose, strict = call("sync", "a", "--database", "x.db"), call("sync", "a", "--database", "x.db", "--strict")
    assert (loose.exit_code, strict.exit_code) == (0, 1)
    assert f"failed: {path}" in loose.stdout
    assert "not valid JSON" in loose.stdout
    (tmp_path / "a" / "session.json").write_text("{}")
    assert call("sync", "a", "--database", "x.db").exit_code == 1, "it brought nothing"


def test_wrong_use_and_dead_servers_have_their_own_exit_codes(tmp_path: Path) -> None:
    making.archive(tmp_path / "a")
    here = f"postgresql://someone@127.0.0.1:{free_port()}/x"

    assert refused("sync", "nowhere", "--database", "x.db").exit_code == 2
    assert refused("sync", "a", "--database", "mysql://host/x").exit_code == 2
    assert refused("sync", "a", "--database", here).exit_code == 3
    secret = refused("sync", "a", "--database", "postgresql://u:hunter22@127.0.0.1/x")
    assert secret.exit_code == 2
    assert "hunter22" not in str(secret)
    assert "WORKBENCH_DATABASE_URL" in str(secret)


def test_show_prints_a_table_or_one_document_and_nothing_else(filled: tuple[str, str]) -> None:
    assert "failures" in call("show").stdout
    assert set(json.loads(call("show", "--json").stdout)) >= {"sessions", "runs", "values"}
    assert "rows: 12" in call("show", "runs", *filled).stdout
    assert json.loads(call("show", "runs", "--limit", "3", "--json", *filled).stdout)["truncated"] is True
    found = call("show", "runs", "--limit", "3", "--csv", *filled)
    assert "only the first 3 rows" in found.stderr
    assert pl.read_csv(found.stdout.encode()).height == 3
    call("show", "values", "--indicator", "PiSorted", "--parquet", "v.parquet", *filled)
    assert pl.read_parquet("v.parquet").height == 12
    own = call("show", "--sql", 'SELECT "case", count(*) AS n, 9e999 AS large FROM run GROUP BY 1', "--json", *filled)
    # A number that is not finite is null in JSON.
    assert json.loads(own.stdout) == {"rows": [{"case": "PiSorted", "n": 12, "large": None}], "truncated": False}
    empty = call("show", "failures", *filled)
    assert (empty.exit_code, empty.stdout.splitlines()[-1]) == (0, "rows: 0")
    # Texts of others cannot steer the terminal.
    assert "\x1b" not in call("show", "sessions", *filled).stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("runs", "--sql", "SELECT 1"), "two queries"),
        (("runs", "--csv", "--json"), "several output formats"),
        (("--sql", "SELECT 1", "--session", "s-1"), "--sql takes no filters"),
        (("values",), "an indicator is required"),
    ],
)
def test_show_refuses_what_it_cannot_answer(filled: tuple[str, str], arguments: tuple[str, ...], told: str) -> None:
    error = refused("show", *arguments, *filled)
    assert (error.exit_code, error.what.startswith(told)) == (2, True)
    assert "does not exist" in str(refused("show", "runs", "--database", "none.db"))
    assert not Path("none.db").exists()


def test_import_finds_the_format_by_itself(tmp_path: Path) -> None:
    (tmp_path / "matmul.stdout").write_text(json.dumps(STDOUT))
    run = pyperf.Run([0.5], metadata={"name": "sort", "unit": "second"}, collect_metadata=False)
    pyperf.Benchmark([run]).dump("suite.json")

    amun, suite = call("import", "matmul.stdout", "--json"), call("import", "suite.json")

    told = json.loads(amun.stdout)
    assert (amun.exit_code, told["format"], told["sessions"][0]["ok"]) == (0, "amun", 1)
    assert Path(told["sessions"][0]["folder"]).parent == tmp_path / "out" / "indicators"
    assert (suite.exit_code, "1 run(s) from pyperf, 1 with values" in suite.stdout) == (0, True)


def test_import_leaves_out_what_it_cannot_read_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.stdout").write_text(json.dumps(STDOUT))
    (tmp_path / "in" / "b.json").write_text("{")
    found, strict = call("import", "in"), call("import", "in", "--strict")
    assert (found.exit_code, strict.exit_code) == (0, 1)
    assert "left out: in/b.json" in found.stdout
    assert "no verdicts" in found.stdout
    (tmp_path / "a.stdout").write_text("Traceback")
    assert call("import", "a.stdout").exit_code == 1, "without one value it is no success"


def test_an_imported_session_goes_all_the_way_and_out_again(tmp_path: Path) -> None:
    (tmp_path / "matmul.stdout").write_text(json.dumps(STDOUT))
    folder = json.loads(call("import", "matmul.stdout", "--json").stdout)["sessions"][0]["folder"]

    assert call("sync", folder, "--database", "x.db").exit_code == 0
    rows = json.loads(call("show", "values", "--indicator", "PiMatmul", "--json", "--database", "x.db").stdout)["rows"]
    told = json.loads(call("export", folder, "--out", "suites", "--json").stdout)

    assert [(row["matrix_size"], row["elapsed"], row["component"]) for row in rows] == [(512, 0.6355, "pytorch")]
    assert [Path(path).name for path in told["paths"]] == ["pytorch.json"]
    assert list(pyperf.Benchmark.load(told["paths"][0]).get_values()) == [0.0006355]


def test_import_and_export_refuse_what_they_do_not_know_or_cannot_write(tmp_path: Path) -> None:
    assert refused("import", "nowhere").exit_code == 2
    assert refused("import", "nowhere", "--format", "xls").what == "no such format"
    assert refused("import", "nowhere", "--indicator", "nix").exit_code == 2
    making.archive(tmp_path / "a")
    (tmp_path / "file").write_text("")

    assert refused("export", "nowhere", "--out", "x").exit_code == 2
    assert refused("export", "a", "--out", "x", "--format", "asv").what == "no such format"
    assert refused("export", "a", "--out", "file/x").exit_code == 2
    assert "3 benchmarks, 12 runs" in call("export", "a", "--out", "x.json").stdout
