"""`workbench speedup profile`: exit codes, one document with --json, a run folder with --out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.speedup.applications import application
from workbench.cli import app
from workbench.speedup import tables

LOGS = SAMPLES / "eventlogs"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def profile(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.main(["speedup", "profile", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(application())
    return path


def test_a_sound_log_has_exit_code_0_and_its_answer_first(profile: Call, log: Path) -> None:
    code, printed, errors = profile(log)
    assert (code, errors) == (0, "")
    assert printed.startswith("Failed work costs about 5.7 s of 8.0 s, 2.9 to 5.7: look at the failures.")
    assert (
        printed.index("verdict: valid") < printed.index("- failed work, 5.7 s") < printed.index("Queries by task time")
    )


def test_the_document_holds_the_findings(profile: Call, log: Path) -> None:
    document = json.loads(profile(log, "--json")[1])
    assert document["details"]
    assert document["findings"][0]["kind"] == "failed work"


def test_a_cut_log_has_exit_code_1_and_the_reasons(profile: Call, log: Path) -> None:
    log.write_bytes(application()[:-200])
    code, printed, _ = profile(log)
    assert code == 1
    assert "verdict: invalid" in printed
    assert "the log is incomplete" in printed


def test_the_run_folder_holds_the_tables_and_the_verdict(profile: Call, log: Path, tmp_path: Path) -> None:
    assert profile(log, "--out", tmp_path / "out", "--sql-id", 0, "--top-operators", 3)[0] == 0
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["verdict"], record["status"]) == ("valid", "succeeded")
    chosen = {"event_log": str(log), "sql_ids": [0], "top_operators": 3}
    assert record["config"] == chosen | {"price_per_executor_h": None}
    for table in tables.PROFILE_TABLES:
        assert pl.read_parquet(tmp_path / "out" / "tables" / f"{table.name}.parquet").columns
    assert record["inputs"][0]["bytes"] == log.stat().st_size


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sql-id", "7"], "no such SQL execution"),
        (["--top-operators", "0"], "top-operators"),
        (["absent"], "no such file"),
    ],
)
def test_wrong_use_has_exit_code_2(arguments: list[str], words: str, profile: Call, log: Path) -> None:
    code, printed, errors = profile(*([] if arguments == ["absent"] else [log]), *arguments)
    assert (code, printed) == (2, "")
    assert words in errors


def test_user_info_in_a_url_reaches_no_record(profile: Call, tmp_path: Path) -> None:
    import fsspec

    store, path = fsspec.filesystem("memory"), "ann:KANARIE@bucket/log"
    with store.open(path, "wb") as file:
        file.write(application())
    try:
        code, printed, errors = profile(f"memory://{path}", "--out", tmp_path / "out")
    finally:
        store.rm(path)
    assert code == 0
    texts = [file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert texts
    assert not any(b"KANARIE" in text for text in texts)
    assert "KANARIE" not in printed + errors
