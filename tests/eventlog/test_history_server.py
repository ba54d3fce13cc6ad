"""Logs of a history server are those of its folder: fetched once, chosen by name and date, or told why not."""

from __future__ import annotations

import errno
import re
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.fakes.history_server import list_applications, serve_fake, serve_spark_history
from tests.fakes.server_start import choose_port
from workbench.core.errors import InputError
from workbench.eventlog import history_server
from workbench.eventlog.codecs import decode_blocks
from workbench.eventlog.history_server import HistoryQuery
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.sources import list_logs
from workbench.spark import releases

LOGS = SAMPLES / "eventlogs"
SMALL, FAILING = LOGS / "small" / "three_queries.zstd", LOGS / "failing.zstd"


def application(name: str, start: str, **attempt: Any) -> dict[str, Any]:
    facts = {"startTime": start, "lastUpdatedEpoch": 5, "completed": True, "sparkUser": "etl", **attempt}
    return {"id": f"local-{name}", "name": f"job {name}", "attempts": [facts]}


APPLICATIONS = [application("1", "2026-11-29T01:00:00.000GMT"), application("2", "2026-11-28T01:00:00.000GMT")]
FILES = {"local-1": SMALL, "local-2": FAILING}


def assert_equal_tables(found: EventLogFacts, wanted: EventLogFacts) -> None:
    for field in fields(EventLogFacts):
        pair = [getattr(facts, field.name) for facts in (found, wanted)]
        if field.name == "logs":
            pair = [table.drop("path") for table in pair]
        assert pair[0].equals(pair[1]), field.name


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(history_server, "RETRY_AFTER_S", (0.01, 0.01))
    return


def test_logs_are_those_of_the_files() -> None:
    with serve_fake(APPLICATIONS, FILES) as (url, fake):
        found = list_logs(f"history:{url}")
        assert [log.path.rpartition("/")[2] for log in found] == ["local-1", "local-2"]
        again = list_logs(f"history:{url}")
        one = list_logs(f"history:{url}/local-2")
    assert [log.files for log in again] == [log.files for log in found]
    assert [log.path for log in one] == [found[1].path]
    # Each log was sent once.
    assert sum(path.endswith("/logs") for path in fake.asked) == 2


def test_its_tables_are_those_of_the_file() -> None:
    with serve_fake(APPLICATIONS, FILES) as (url, _):
        assert_equal_tables(read_event_logs(f"history:{url}/local-1"), read_event_logs(SMALL))


def test_applications_are_chosen_by_date_name_and_user() -> None:
    with serve_fake(APPLICATIONS, FILES) as (url, fake):
        assert len(list_logs(f"history:{url}?since=2026-11-29")) == 1
        assert len(list_logs(f"history:{url}?name=job*&limit=1")) == 1
        assert len(list_logs(f"history:{url}?name=*2&user=etl")) == 1
        list_logs(f"history:{url}?since=2026-11-28T12:30")
        with pytest.raises(InputError, match="no such application"):
            list_logs(f"history:{url}?user=nobody")
    assert any(path.endswith("minDate=2026-11-28T12%3A30%3A00.000GMT") for path in fake.asked)


def test_many_applications_are_not_cut_in_silence() -> None:
    many = [application(str(number), "2026-11-29T01:00:00.000GMT") for number in range(201)]
    with serve_fake(many, {one["id"]: SMALL for one in many}) as (url, fake):
        with pytest.raises(InputError, match="say which"):
            list_logs(f"history:{url}")
        assert len(list_logs(f"history:{url}?limit=2")) == 2
    assert sum(path.endswith("/logs") for path in fake.asked) == 2


def test_a_full_disk_is_no_fault_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(history_server.zipfile, "is_zipfile", fill)
    with serve_fake(APPLICATIONS, FILES) as (url, _), pytest.raises(OSError, match="No space left"):
        list_logs(f"history:{url}")


def test_a_running_application_is_fetched_as_far_as_it_is() -> None:
    running = [application("1", "2026-11-29T01:00:00.000GMT", completed=False)]
    with serve_fake(running, FILES) as (url, fake):
        assert list_logs(f"history:{url}")[0].in_progress
        list_logs(f"history:{url}")
    assert sum(path.endswith("/logs") for path in fake.asked) == 2


def test_a_log_that_went_on_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    with serve_fake([application("1", "2026-11-29T01:00:00.000GMT")], FILES) as (url, fake):
        list_logs(f"history:{url}")
        fake.applications[0]["attempts"][0]["lastUpdatedEpoch"] = 9
        list_logs(f"history:{url}")
    assert [file.name for file in (tmp_path / "cache").rglob("*.zip")] == ["local-1-9.zip"]


def test_a_server_that_breaks_off_is_asked_again() -> None:
    def fault(path: str, count: int) -> str:
        return ("cut" if path.endswith("/logs") else "503") if count < 2 else ""

    with serve_fake(APPLICATIONS[:1], FILES, fault) as (url, _):
        assert_equal_tables(read_event_logs(f"history:{url}"), read_event_logs(SMALL))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("500", "refuses"),
        ("403", "refuses"),
        ("<html>", "not a history server's answer"),
        ('{"a": 1}', "not a history"),
    ],
)
def test_what_is_no_history_server_is_told(answer: str, told: str) -> None:
    with (
        serve_fake(APPLICATIONS, FILES, lambda _path, _count: answer) as (url, _),
        pytest.raises(InputError, match=told),
    ):
        list_logs(f"history:{url}")


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(InputError, match="does not answer"):
        list_logs(f"history:http://127.0.0.1:{choose_port()}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("history:ftp://host", "not a history server"),
        ("history:/var/log", "not a history server"),
        ("history:http://user:secret@host", "not a history server"),
        ("history:http://host?sinc=2026-01-01", "not an option"),
        ("history:http://host?since=yesterday", "not a date"),
        ("history:http://host?since=2026-13-01", "not a date"),
        ("history:http://host?limit=all", "not a limit"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_asked(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        list_logs(text)


def test_an_id_is_told_from_a_folder_of_a_proxy() -> None:
    assert HistoryQuery.read("history:http://h/gateway/spark").server == "http://h/gateway/spark"
    for name in ("application_1_0002", "app-20261128-0001", "local-17", "spark-0af3bc12"):
        assert HistoryQuery.read(f"history:http://h/x/{name}") == HistoryQuery("http://h/x", name)
        assert HistoryQuery.read(f"history:http://h/{name}/2") == HistoryQuery("http://h", name, "2")


def test_each_attempt_is_a_log_that_can_be_asked_for() -> None:
    retried = application("1", "2026-11-29T01:00:00.000GMT", attemptId="2")
    retried["attempts"].append(retried["attempts"][0] | {"attemptId": "1"})
    with serve_fake([retried], FILES) as (url, _):
        found = list_logs(f"history:{url}")
        assert [log.path.rpartition("/")[2] for log in found] == ["2", "1"]
        assert [log.path for log in list_logs(found[1].path)] == [found[1].path]


def write_copies(folder: Path, count: int) -> dict[str, Path]:
    """Logs of as many applications, by their ids: copies of samples."""
    folder.mkdir()
    files = {}
    for number in range(count):
        source = (SMALL, FAILING)[number % 2]
        with source.open("rb") as opened:
            text = b"".join(decode_blocks(opened, "zstd")).decode()
        name = re.search(r'"App ID":"([^"]+)"', text)
        assert name is not None
        own = f"local-17900000{number:05}"
        files[own] = folder / own
        files[own].write_text(text.replace(name[1], own))
    return files


def wait_for_applications(port: int, count: int) -> None:
    deadline_s = time.monotonic() + 120
    while len(list_applications(port)) < count and time.monotonic() < deadline_s:
        time.sleep(0.5)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", ["3.5", pytest.param("4.1", marks=[pytest.mark.network, pytest.mark.slow])])
def test_spark_s_own_server_gives_the_tables_of_the_files(line: str, tmp_path: Path) -> None:
    import pyspark

    home, variables = Path(str(pyspark.__file__)).parent, {}
    if line != "3.5":
        release = releases.RELEASES[line]
        variables = releases.build_release_environment(release, say=print)
        home = release.folder / "pyspark"
    files = write_copies(tmp_path / "logs", 50)
    port = choose_port()
    url = f"history:http://127.0.0.1:{port}"
    with serve_spark_history(home, tmp_path / "logs", port, variables):
        wait_for_applications(port, 25)
        first = list_logs(f"{url}?limit=20")
    # Killed and started again in between: what is in the cache is not sent again, and the rest comes.
    with serve_spark_history(home, tmp_path / "logs", port, variables):
        wait_for_applications(port, 50)
        again = list_logs(url)
        assert len(again) == 50
        read = read_event_logs(url)
    assert {log.path for log in first} <= {log.path for log in again}
    wanted = read_event_logs(*(files[log.path.rpartition("/")[2]] for log in again))
    assert_equal_tables(read, wanted)
