"""The ledger on disk: lines are kept whatever happens to their writers; one that cannot be read has its number."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forecasts.conftest import DAY, format_line, make_forecast, make_outcome
from workbench.core import locks, redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.forecasts import ledger as ledgers
from workbench.forecasts.ledger import append_entries, parse_ledger, read_ledger

FORECAST, OUTCOME = format_line(make_forecast(1)), format_line(make_outcome(1))


def test_what_is_appended_is_read_again_and_no_line_changes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.jsonl"
    before = append_entries(path, lambda ledger: [make_forecast(1), make_forecast(2)])
    first = path.read_bytes()
    append_entries(path, lambda ledger: [make_outcome(1)])
    assert before.forecasts == {}
    assert path.read_bytes().startswith(first)
    found = read_ledger(path)
    assert list(found.forecasts.values()) == [make_forecast(1), make_forecast(2)]
    assert found.newest_outcomes == {make_forecast(1).id: make_outcome(1)}


def test_a_last_line_that_was_cut_is_left_out_and_removed_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for n_bytes in (1, 20, len(OUTCOME) - 2):
        path.write_text(FORECAST + OUTCOME[:n_bytes])
        assert (len(read_ledger(path).outcomes), read_ledger(path).n_torn_bytes) == (0, n_bytes)
        append_entries(path, lambda ledger: [make_forecast(2)])
        assert path.read_text().splitlines(keepends=True)[0] == FORECAST
        assert (len(read_ledger(path).forecasts), read_ledger(path).n_torn_bytes) == (2, 0)


def test_a_last_line_that_only_lacks_its_end_counts_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(FORECAST + OUTCOME.rstrip("\n"))
    assert len(read_ledger(path).outcomes) == 1
    append_entries(path, lambda ledger: [make_forecast(2)])
    assert path.read_text().startswith(FORECAST + OUTCOME)
    assert len(read_ledger(path).forecasts) == 2


def change(line: str, **values: Any) -> str:
    return json.dumps(json.loads(line) | values) + "\n"


BAD_LINES = {
    "no JSON": ("{nothing\n", "not JSON"),
    "half a line in the middle": (OUTCOME[:30] + "\n", "not JSON"),
    "a list": ("[1]\n", "not a line of a ledger"),
    "another kind": (change(FORECAST, kind="guess"), "not a line of a ledger"),
    "a kind that is no text": (change(FORECAST, kind=[1]), "not a line of a ledger"),
    "a newer format": (change(FORECAST, format_version=3), "of a newer workbench"),
    "no format": (change(FORECAST, format_version=None), "no format_version"),
    "an unknown field": (change(FORECAST, surprise=1), "there is no such field"),
    "no value": (change(FORECAST, value=None), "value"),
    "a value that is not finite": (change(FORECAST, value=float("nan")), "finite"),
    "ends that are exchanged": (change(FORECAST, low=5, high=1), "the lower end 5 is above the upper end 1"),
    "a value below 0": (change(FORECAST, value=-1), "not a forecast of a ledger"),
    "an end below 0": (change(OUTCOME, low=-0.5), "not an outcome of a ledger"),
    "a value below its interval": (change(FORECAST, value=7.5), "the value 7.5 is below its lower end 8"),
    "a value above its interval": (change(OUTCOME, high=9), "the value 10 is above its upper end 9"),
    "a level beyond 1": (change(FORECAST, level=90), "level"),
    "a time without a zone": (change(FORECAST, kept_at="2026-11-01T00:00:00"), "timezone"),
    "an id that is none": (change(FORECAST, id="../x"), "id"),
    "text that steers a terminal": (change(FORECAST, subject="\x1b[2J"), "one line without control characters"),
    "text of two lines": (change(FORECAST, subject="a\n"), "one line without control characters"),
    "neither value nor failure": (change(OUTCOME, value=None), "either a value or a failure"),
    "an outcome of nothing": (change(OUTCOME, forecast="f" * 12), "a forecast that does not exist"),
    "one id for two": (change(FORECAST, value=11.0), "two forecasts of one id"),
    "bytes that are no text": ("\xff\n", "JSON"),
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.values(), ids=list(BAD_LINES))
def test_a_bad_line_is_an_error_with_its_number_and_loses_nothing(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "ledger.jsonl"
    content = (FORECAST + "\n").encode() + line.encode("latin-1" if "\xff" in line else "utf-8") + OUTCOME.encode()
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_ledger(path)
    assert "ledger.jsonl, line 3" in str(caught.value.facts["where"])
    with pytest.raises(InputError):
        append_entries(path, lambda ledger: [make_forecast(3)])
    assert path.read_bytes() == content


def test_files_that_are_no_ledger_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot read the ledger"):
        read_ledger(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="cannot write the ledger"):
        append_entries(tmp_path, lambda ledger: [])
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="not a regular file"):
        append_entries(tmp_path / "fifo", lambda ledger: [])
    path = tmp_path / "ledger.jsonl"
    path.write_text(FORECAST)
    monkeypatch.setattr(ledgers, "MAX_LEDGER_BYTES", len(FORECAST) + 10)
    with pytest.raises(ConfigError, match="is full"):
        append_entries(path, lambda ledger: [make_outcome(1)])
    assert path.read_text() == FORECAST
    path.write_text(FORECAST + OUTCOME)
    with pytest.raises(InputError, match="too large"):
        read_ledger(path)


def test_a_disk_that_is_full_leaves_the_lines_that_were_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(FORECAST)
    write = os.pwrite

    def write_half(handle: int, data: Any, offset: int) -> int:
        if len(data) < 200:
            raise OSError(28, "No space left on device")
        return write(handle, data[: len(data) // 2], offset)

    monkeypatch.setattr(os, "pwrite", write_half)
    with pytest.raises(RunFailedError, match="cannot write the ledger"):
        append_entries(path, lambda ledger: [make_forecast(2)])
    assert path.read_text() == FORECAST


def test_a_secret_in_a_remark_does_not_reach_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2hunter2")
    monkeypatch.setenv(redaction.SECRET_NAMES_VARIABLE, "SERVICE_TOKEN")
    fields = make_forecast(1).model_dump() | {"note": "with hunter2hunter2"}
    entry = ledgers.build_entry(ledgers.Forecast, fields, where=None)
    assert "hunter2" not in format_line(entry)


def append_numbers(path: str, begin: int, n_entries: int) -> None:
    """Append forecasts one by one, each only where its id is not there."""
    for number in range(begin, begin + n_entries):
        entry = make_forecast(number)
        append_entries(path, lambda ledger, entry=entry: [] if entry.id in ledger.forecasts else [entry])


def test_a_writer_waits_for_another_and_then_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(FORECAST)
    monkeypatch.setattr(ledgers, "_WAIT_S", 0.05)
    handle = locks.lock_path(path, "held by the test")
    with pytest.raises(ConfigError, match="another process writes the ledger"):
        append_entries(path, lambda ledger: [make_forecast(2)])
    os.close(handle)
    assert len(append_entries(path, lambda ledger: [make_forecast(2)]).forecasts) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_writers_in_threads_and_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.jsonl")
    processes = [
        multiprocessing.get_context("fork").Process(target=append_numbers, args=(path, begin, 15)) for begin in (0, 10)
    ]
    threads = [threading.Thread(target=append_numbers, args=(path, begin, 15)) for begin in (5, 20)]
    for worker in (*processes, *threads):
        worker.start()
    for worker in (*processes, *threads):
        worker.join()
    assert [process.exitcode for process in processes] == [0, 0]
    lines = Path(path).read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == [f"{number:012x}" for number in range(35)]


def test_a_forecast_of_two_joined_ledgers_counts_once_though_an_older_version_kept_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    old = json.loads(FORECAST)
    del old["application"]
    path.write_text(json.dumps(old | {"format_version": 1}) + "\n" + format_line(make_forecast(1, application="app-1")))
    assert list(read_ledger(path).forecasts) == [make_forecast(1).id]


def test_an_end_that_misses_its_value_in_the_last_digit_is_no_contradiction() -> None:
    assert make_forecast(1, value=0.3, low=0.1 + 0.2, high=0.4).low == 0.1 + 0.2


ENTRIES = [
    *(make_forecast(number, value=8.0 + number / 2) for number in range(6)),
    *(make_outcome(number, value=6.0) for number in range(4)),
    make_outcome(2, value=7.0),
    make_outcome(3, None, failure="out of memory"),
    make_forecast(5, value=10.5, kept_at=DAY.replace(month=12)),
]
IN_ORDER = parse_ledger("".join(map(format_line, ENTRIES)).encode(), "x")


@settings(max_examples=20, deadline=None)
@given(st.permutations(ENTRIES), st.integers(0, 400))
def test_the_order_of_lines_does_not_matter_and_a_cut_takes_the_last_line_alone(entries: list[Any], n_cut: int) -> None:
    text = "".join(map(format_line, entries))
    found = parse_ledger(text.encode(), "x")
    assert found.forecasts == IN_ORDER.forecasts
    assert found.newest_outcomes == IN_ORDER.newest_outcomes
    last = format_line(make_outcome(1, value=1.0))
    cut = parse_ledger((text + last[:n_cut]).encode(), "x")
    is_whole = n_cut >= len(last) - 1
    assert len(cut.outcomes) == len(found.outcomes) + is_whole
    assert cut.n_torn_bytes == (0 if is_whole else n_cut)
