"""Which files make up which log, and what is no log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import codecs
from tests.fakes import eventlogs as made
from workbench.core.errors import InputError
from workbench.eventlog.reader import read_event_logs
from workbench.eventlog.sources import list_all_logs, list_logs

CONTENT = made.small()


def write(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(path: Path) -> list[list[str]]:
    return [[Path(file.url).name for file in source.files] for source in list_logs(str(path))]


def test_files_of_a_rolling_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        write(tmp_path / "eventlog_v2_app" / f"events_{number}_app.zstd", codecs.zstd(CONTENT))
    write(tmp_path / "eventlog_v2_app" / "appstatus_app", b"")
    write(tmp_path / "eventlog_v2_app" / ".events_1_app.crc", b"crc")
    expected = [[f"events_{number}_app.zstd" for number in (1, 2, 10)]]
    assert names(tmp_path) == names(tmp_path / "eventlog_v2_app") == expected
    assert not list_logs(str(tmp_path))[0].in_progress


def test_a_compacted_file_stands_for_itself_and_all_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app"
    for name in ("events_1_app", "events_2_app.compact", "events_3_app", "events_5_app.compact", "events_6_app"):
        write(folder / name)
    assert names(folder) == [["events_5_app.compact", "events_6_app"]]


def test_an_application_that_runs_is_known_by_its_status_file_or_suffix(tmp_path: Path) -> None:
    write(tmp_path / "eventlog_v2_a" / "events_1_a")
    write(tmp_path / "eventlog_v2_a" / "appstatus_a.inprogress", b"")
    write(tmp_path / "local-1.inprogress")
    assert [source.in_progress for source in list_logs(str(tmp_path))] == [True, True]


def test_databricks_parts_are_joined_by_date_with_the_undated_last(tmp_path: Path) -> None:
    lines = CONTENT.splitlines(keepends=True)
    write(tmp_path / "cluster" / "eventlog", b"".join(lines[3:]))
    write(tmp_path / "cluster" / "eventlog-2026-01-10--10-00.gz", codecs.gzip(lines[2]))
    write(tmp_path / "cluster" / "eventlog-2026-01-09--23-30.gz", codecs.gzip(b"".join(lines[:2])))
    assert names(tmp_path) == [["eventlog-2026-01-09--23-30.gz", "eventlog-2026-01-10--10-00.gz", "eventlog"]]
    facts = read_event_logs(tmp_path / "cluster")
    assert facts.logs.select("n_files", "n_lines").rows() == [(3, len(lines))]
    assert facts.applications["status"].to_list() == ["complete"]


def test_attempts_and_applications_are_logs_of_their_own_in_natural_order(tmp_path: Path) -> None:
    for name in ("app_10", "app_2", "app_2.tmp"):
        write(tmp_path / name)
    write(tmp_path / "deeper" / "app_3")
    write(tmp_path / ".hidden" / "app_4")
    write(tmp_path / "_temporary" / "app_5")
    assert names(tmp_path) == [["app_2"], ["app_2.tmp"], ["app_10"], ["app_3"]]


def test_in_a_folder_what_is_no_log_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "log")
    write(tmp_path / "notes.txt", b"no log")
    write(tmp_path / "data.json", b'{"a": 1}\n')
    write(tmp_path / "empty", b"")
    write(tmp_path / "_SUCCESS", b"")
    assert names(tmp_path) == [[], ["log"]]
    assert list_logs(str(tmp_path))[0].notes == ("the file is empty",)


def test_an_empty_part_of_a_rolling_log_is_noted_and_the_others_read_if_there_are_any(tmp_path: Path) -> None:
    write(tmp_path / "eventlog_v2_app" / "events_1_app")
    write(tmp_path / "eventlog_v2_app" / "events_2_app", b"")
    (source,) = list_logs(str(tmp_path))
    assert source.notes == ("events_2_app: empty",)
    assert read_event_logs(tmp_path).logs["fault"].to_list() == ["events_2_app: empty"]


def test_a_rolling_log_of_empty_parts_is_a_row_among_others_and_refused_alone(tmp_path: Path) -> None:
    write(tmp_path / "eventlog_v2_app" / "events_1_app", b"")
    assert list_logs(str(tmp_path))[0].notes == ("events_1_app: empty",)
    with pytest.raises(InputError, match="no Spark event"):
        read_event_logs(tmp_path)
    write(tmp_path / "log")
    assert read_event_logs(tmp_path).logs["fault"].to_list() == [None, "events_1_app: empty; no event in it"]


def test_leading_blank_lines_do_not_hide_a_log(tmp_path: Path) -> None:
    path = write(tmp_path / "log", b"\n" * 100 + CONTENT)
    assert list_logs(str(path))[0].codec == "plain"


def test_the_same_log_named_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "log")
    (tmp_path / "link").symlink_to(path)
    again = [path, str(path), tmp_path / "link", f"{tmp_path}/../{tmp_path.name}/log", tmp_path]
    assert len(list_all_logs(again)) == 1
    assert read_event_logs(path, path).applications.height == 1


def test_a_file_that_may_not_be_read_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log")

    def refuse(self: Path, *_: object) -> None:  # root may read everything, whatever the file's mode
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="cannot be read"):
        list_logs(str(path))


def test_names_with_signs_of_urls_and_patterns_are_plain_names(tmp_path: Path) -> None:
    for name in ("a b", "*", "[x]", "50%", "ü", "a#b", "a?b", "{x}"):
        path = write(tmp_path / name / "log")
        assert read_event_logs(path).applications.height == 1, name
        assert read_event_logs(tmp_path / name).applications.height == 1, name


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "log")
    (tmp_path / "folder" / "loop").symlink_to(tmp_path / "folder", target_is_directory=True)
    assert read_event_logs(tmp_path / "folder").applications.height == 1
