"""A kept log is what Spark wrote, in one frame of zstd; scrubbed, it tells nothing about the machine."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard

from workbench.core.errors import RunFailedError
from workbench.speedup.recording import recorder, session_log

LINES = [
    '{"Event":"SparkListenerLogStart","Spark Version":"3.5.9"}',
    '{"Event":"SparkListenerApplicationStart","App Name":"x","User":"ann"}',
    '{"Event":"SparkListenerEnvironmentUpdate","System Properties":{"user.home":"/home/ann"}}',
    '{"Event":"x","plan":"Location: InMemoryFileIndex [file:/home/ann/t/a.parquet, file:/home/an...","h":"Ω"}',
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "local-1"
    path.write_text("\n".join(LINES) + "\n")
    return path


def content(path: Path) -> str:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()


def test_a_log_is_kept_byte_for_byte(log: Path, tmp_path: Path) -> None:
    assert session_log.write_session_log(log, tmp_path / "kept.zstd", stand_ins=None) == []
    assert content(tmp_path / "kept.zstd") == log.read_text()


def test_a_scrubbed_log_tells_nothing_and_keeps_the_rest(log: Path, tmp_path: Path) -> None:
    assert session_log.write_session_log(log, tmp_path / "kept.zstd", stand_ins={"/home/ann/t": "/data/tables"}) == []
    lines = content(tmp_path / "kept.zstd").splitlines()
    assert lines[0] == LINES[0]
    assert json.loads(lines[1])["User"] == "user"
    assert json.loads(lines[2])["System Properties"] == {}
    assert json.loads(lines[3]) == {
        "Event": "x",
        "plan": "Location: InMemoryFileIndex [file:/data/tables/a.parquet, file:/data/...",
        "h": "Ω",
    }


def test_what_scrubbing_leaves_is_said(log: Path, tmp_path: Path) -> None:
    found = session_log.write_session_log(log, tmp_path / "kept.zstd", stand_ins={"/elsewhere/x": "/data/x"})
    assert any("/home" in text for text in found)
    assert len(found) <= session_log.MAX_NOTED + 1


def test_a_log_that_was_not_closed_is_none(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="no closed event log"):
        session_log.find_session_log(tmp_path)
    (tmp_path / "local-1.inprogress").touch()
    with pytest.raises(RunFailedError, match="no closed event log"):
        session_log.find_session_log(tmp_path)
    (tmp_path / "local-1.inprogress").rename(tmp_path / "local-1")
    (tmp_path / ".local-1.crc").touch()
    assert session_log.find_session_log(tmp_path).name == "local-1"


def test_places_cover_what_a_log_may_name() -> None:
    found = session_log.map_machine_paths(data="/home/ann/t", work="/home/ann/out", jars={"/home/ann/c.jar": "c.jar"})
    assert found["/home/ann/t"] == "/data/tables"
    assert found["/home/ann/c.jar"] == "/data/jars/c.jar"
    assert found[str(Path(session_log.__file__).parents[3])].startswith("/data/")
    assert all(name.startswith("/data/") for name in found.values())


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ('"file:/srv/x"', "file URI"),
        ('"/home/ann/x"', "absolute path"),
        ('"10.1.2.3"', "IP address"),
        ('{"Host":"node7"}', "host: node7"),
        ('"by ann"', "name: ann"),
    ],
)
def test_findings_see_paths_hosts_and_names(line: str, finding: str) -> None:
    assert any(text.startswith(finding) for text in session_log.list_machine_traces(line, names=("ann",)))


def test_findings_leave_stand_ins_alone() -> None:
    line = '{"Host":"localhost","p":"file:/data/tables/a","q":"127.0.0.1"}'
    assert session_log.list_machine_traces(line, names=("ann",)) == []


def test_a_recording_names_no_folder_of_the_machine_unless_it_may() -> None:
    plan = SimpleNamespace(folder="/home/ann/work")
    facts = {"java_home": "/home/ann/java"}
    for scrub in (True, False):
        prepared = SimpleNamespace(
            config=SimpleNamespace(scrub=scrub), data=SimpleNamespace(place="/home/ann/data"), jars={}
        )
        found = recorder._build_stand_ins(cast(Any, prepared), cast(Any, plan), facts, "/home/ann/scratch")
        line = " ".join(f"/home/ann/{name}" for name in ("work", "data", "java", "scratch"))
        assert ("ann" in session_log.scrub_line(line, found or {})) is not scrub
