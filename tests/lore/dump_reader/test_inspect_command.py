"""`workbench lore inspect`: exit codes, one document with --json, a run folder with --out, and no JVM."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lore import small_dump
from tests.lore.dump_reader import made
from workbench.cli import app
from workbench.lore import tables
from workbench.lore.dumps.dump_folder import ExpectedError

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inspected(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.main(["lore", "inspect", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


def own_dump(folder: Path) -> Path:
    error = ExpectedError(error_class="DIVIDE_BY_ZERO", message="Division by zero", partition=0)
    output = small_dump.sidecar_of({}).output.model_copy(update={"error": error})
    return made.own_dump(
        folder, masked="results differ from the original", python_functions=["double_it"], output=output
    )


TOLD: dict[Callable[[Path], Path], tuple[str, ...]] = {
    made.gpu_dump: (
        "1 dump, none with faults.",
        "loreId-7: Project, by the GPU plugin",
        "BatchEvalPython",
        "Python function double_it: batched, Python 3.11",
        "partitions: 2 (of 5 in the original), rows: 50",
        "the plugin does not say which",
        "Partitions, most rows first: input-0 (2 rows)",
        "Columns: input-0 (12 of 14 rows)",
        "decimal(12,2)",
    ),
    own_dump: (
        "operator: Filter (a#7L > 2)",
        "spark 3.5.9",
        "checksums: hold for all 5 files",
        "signed: with your key",
        "compared with: the operator recomputed at dump time",
        "masked: results differ from the original",
        "Python functions: double_it",
        "input-0 (rows): partitions: 2 (of 3 in the original), rows: 4",
        "expected error: DIVIDE_BY_ZERO: Division by zero",
    ),
}


@pytest.mark.parametrize("make", TOLD)
def test_a_dump_of_the_plugin_and_one_of_ours_are_told_in_words(
    make: Callable[[Path], Path], inspected: Call, tmp_path: Path
) -> None:
    code, out, _ = inspected(make(tmp_path))
    assert code == 0
    assert [told for told in TOLD[make] if told not in out] == []


def test_damage_has_exit_code_1_and_names_the_file(inspected: Call, tmp_path: Path) -> None:
    dump = made.own_dump(tmp_path)
    (dump / "input-0/partition-0/batch-0.parquet").write_bytes(b"no Parquet")
    code, out, _ = inspected(dump)
    assert code == 1
    assert "FAULT input-0/partition-0/batch-0.parquet" in out
    assert "checksums: do not hold" in out


@pytest.mark.parametrize("name", ["nowhere", "file", "empty"])
def test_what_is_no_dump_has_exit_code_2(name: str, inspected: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    code, out, err = inspected(tmp_path / name)
    assert (code, out) == (2, "")
    assert str(tmp_path / name) in err


def test_json_is_one_document(inspected: Call, tmp_path: Path) -> None:
    made.gpu_dump(tmp_path)
    made.own_dump(tmp_path)
    code, out, _ = inspected(tmp_path, "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["verdict"], document["reasons"], document["out"]) == ("valid", [], None)
    assert [(dump["lore_id"], dump["origin"], dump["operator"]) for dump in document["dumps"]] == [
        (3, "workbench", "Filter"),
        (7, "gpu", "Project"),
    ]
    assert document["dumps"][0]["checksums_hold"] is True
    assert document["dumps"][1]["plan"]["functions"][0]["name"] == "double_it"
    assert document["rows_left_out"] == {"batches": 0, "partitions": 0, "columns": 0}
    assert len(document["columns"]) == 14 + 3


def test_out_is_a_run_folder_with_the_tables(inspected: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, printed, _ = inspected(made.gpu_dump(tmp_path), "--out", out)
    assert code == 0
    assert str(out) in printed
    record = json.loads((out / "run.json").read_text())
    assert (record["verdict"], record["answer"]) == ("valid", "1 dump, none with faults.")
    for declared in tables.INSPECTION_TABLES:
        assert declared.read(out / "tables").height > 0


def test_texts_of_a_dump_do_not_steer_the_terminal(inspected: Call, tmp_path: Path) -> None:
    evil = "Filter \x1b[2J\x1b]0;owned\x07\u202e"
    dump = made.own_dump(tmp_path, operator=evil, operator_text=evil, python_functions=[evil], masked=evil)
    code, out, _ = inspected(dump)
    assert code == 0
    assert "owned" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_fewer_rows_are_looked_at_and_that_is_said(inspected: Call, tmp_path: Path) -> None:
    _, out, _ = inspected(made.gpu_dump(tmp_path), "--rows", 5, "--top", 1)
    assert "values of the first 5 rows; 2 batches not inspected" in out
    assert "(1 of 2 rows)" in out


def test_no_process_is_started(inspected: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda self, *given, **_: started.append(given))
    monkeypatch.setattr("pickle.loads", lambda *given, **_: started.append(given))
    assert inspected(made.gpu_dump(tmp_path))[0] == 0
    assert started == []
