"""The command: exit codes, what stands on which stream, what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.eventlog.conftest import LOGS
from tests.fakes import eventlogs as made
from workbench.cli import app
from workbench.core.tables import escape_formulas
from workbench.eventlog import tables

SMALL = LOGS / "small" / "three_queries.zstd"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def facts(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.main(["eventlog", "facts", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_all_tables_and_the_record_are_written(facts: Call, out: Path) -> None:
    code, printed, errors = facts(SMALL, "--out", out)
    assert (code, errors) == (0, "")
    assert "local-" in printed
    assert "complete" in printed
    record = json.loads((out / "run.json").read_text())
    assert (record["status"], record["failure"]) == ("succeeded", None)
    assert record["inputs"][0]["bytes"] == SMALL.stat().st_size
    assert {entry["name"] for entry in record["tables"]} == {"books"} | {table.name for table in tables.ALL_TABLES}
    noted = {entry["name"]: entry for entry in record["tables"]}
    assert noted["stages"]["key"] == list(tables.STAGES.key)
    assert noted["applications"]["units"]["duration_ms"] == "ms"
    for entry in record["tables"]:
        assert pl.read_parquet(out / "tables" / f"{entry['name']}.parquet").height == entry["rows"]


def test_csv_files_say_what_the_parquet_files_say(facts: Call, out: Path) -> None:
    assert facts(LOGS / "failing.zstd", "--out", out, "--csv")[0] == 0
    for table in tables.ALL_TABLES:
        parquet = pl.read_parquet(out / "tables" / f"{table.name}.parquet")
        lists = [name for name, dtype in parquet.schema.items() if isinstance(dtype, pl.List)]
        expected = escape_formulas(parquet.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" ")))
        csv = pl.read_csv(out / "tables" / f"{table.name}.csv", schema=expected.schema)
        # A null and an empty text look alike in CSV.
        blank = pl.col(pl.String).fill_null("")
        assert csv.with_columns(blank).equals(expected.with_columns(blank)), table.name


def test_wrong_use_is_told_and_writes_nothing(facts: Call, out: Path) -> None:
    code, printed, errors = facts(SMALL, "--out", out, "--jobs", "0")
    assert (code, printed) == (2, "")
    assert "jobs" in errors
    assert facts(SMALL)[0] == facts("--out", out)[0] == 2
    assert not out.exists()


@pytest.mark.parametrize("content", [None, b"", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_log_has_exit_code_2_and_leaves_no_folder(
    content: bytes | None, facts: Call, out: Path, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "log").write_bytes(content)
    code, printed, errors = facts(tmp_path / "log", "--out", out, "--json")
    assert (code, printed) == (2, "")
    assert "Traceback" not in errors
    assert not out.exists()


def test_a_log_without_events_fails_and_the_record_says_so(facts: Call, out: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'{"a":1}\n')
    code, _, errors = facts(tmp_path / "log", "--out", out)
    assert code == 2
    assert "no Spark event" in errors
    record = json.loads((out / "run.json").read_text())
    assert (record["status"], record["failure"]["error_name"]) == ("failed", "InputError")


def test_a_cut_log_is_read_and_its_fault_printed(facts: Call, out: Path, tmp_path: Path) -> None:
    data = (LOGS / "small" / "three_queries.lz4").read_bytes()
    (tmp_path / "log").write_bytes(data[: len(data) * 2 // 3])
    code, printed, _ = facts(tmp_path / "log", "--out", out)
    assert code == 1
    assert "incomplete" in printed
    assert "fault: " in printed


def test_a_name_in_a_log_does_not_steer_the_terminal(facts: Call, out: Path, tmp_path: Path) -> None:
    start = made.application_start(name="\x1b]0;owned\x07\x1b[2Jred\r\u202e")
    start["App ID"] = "\x1b[31mapp\n"
    (tmp_path / "log").write_bytes(made.dump(made.log_start(), start, made.application_end()))
    for option in ([], ["--json"]):
        _, printed, errors = facts(tmp_path / "log", "--out", out, *option)
        assert not {char for char in printed + errors if ord(char) < 32 or char == "\u202e"} - {"\n"}


def test_a_second_run_into_the_same_folder_replaces_the_first(facts: Call, out: Path) -> None:
    assert facts(LOGS / "failing.zstd", "--out", out)[0] == 0
    assert facts(SMALL, "--out", out)[0] == 0
    assert pl.read_parquet(out / "tables" / "failures.parquet").height == 0


def test_only_what_reading_needs_is_loaded(tmp_path: Path) -> None:
    """Each of these would cost more than reading a log of 1 MB."""
    program = (
        "import sys\nfrom workbench import cli\n"
        "try:\n    cli.main(sys.argv[1:])\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "print('LOADED', *sys.modules)"
    )
    arguments = ["eventlog", "facts", str(SMALL), "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split("LOADED", 1)[1].split())
    heavy = "altair papermill nbconvert nbformat IPython scipy pandas matplotlib aiohttp s3fs gcsfs jupyter_client zmq "
    heavy += "asyncio multiprocessing.pool fsspec numpy.random"
    assert loaded & set(heavy.split()) == set()
    assert "polars" in loaded
