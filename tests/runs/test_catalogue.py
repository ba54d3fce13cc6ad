"""The runs that are there: found below folders and URLs, chosen, and read within bounds."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import pytest

from tests.fakes.kept_runs import kept
from workbench.cli import app, run_output
from workbench.core import redaction
from workbench.core.errors import InputError
from workbench.core.files import OUT_VARIABLE
from workbench.core.locks import find_holder, release_lock
from workbench.runs import catalogue, run_folder, run_stores
from workbench.runs.run_folder import read_start_time


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (run_folder.RUN_DIR_VARIABLE, OUT_VARIABLE, redaction.SECRET_NAMES_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def bucket() -> Any:
    """An object store in this process's memory."""
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/bucket", recursive=True)


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(list(arguments))
    return int(ended.value.code or 0)


def test_runs_of_a_url_are_listed_shown_and_read_as_those_of_a_folder(
    tmp_path: Path, bucket: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path / "runs")
    bucket.put(str(tmp_path / "runs"), "/bucket/runs", recursive=True)
    url = "memory://bucket/runs"
    (found,) = catalogue.list_runs(url)
    assert (found.run_id, found.state) == (run.run_id, "succeeded")
    assert found.read_table("factors").height == 3
    assert call("runs", "list", "--out", url) == 0
    assert run.run_id[:15] in capsys.readouterr().out
    assert call("runs", "show", run.run_id[:20], "--out", url) == 0
    assert run.run_id in capsys.readouterr().out
    assert call("runs", "show", found.place, "--json") == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == run.run_id
    assert call("runs", "diff", found.place, str(run.folder)) == 0


def test_a_run_that_was_copied_while_it_went_on_is_called_unfinished(tmp_path: Path, bucket: Any) -> None:
    run = run_folder.start_run("a", tmp_path / "runs")
    bucket.put(str(tmp_path / "runs"), "/bucket/runs", recursive=True)
    run.end("failed")
    assert [found.state for found in catalogue.list_runs("memory://bucket/runs")] == ["unfinished"]


@pytest.mark.parametrize("place", ["file://{}", "{}"])
def test_a_broken_run_is_told_and_the_others_are_listed(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    assert call("runs", "list", "--out", place.format(tmp_path)) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].startswith(run.run_id[:15])
    assert "unreadable run record" in captured.err


def test_more_runs_than_are_listed_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        run_folder.start_run("a", tmp_path).end("succeeded")
    monkeypatch.setattr(catalogue, "MAX_RUNS", 3)
    assert call("runs", "list", "--out", str(tmp_path)) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(catalogue, "MAX_RUNS", 2)
    assert call("runs", "list", "--out", str(tmp_path)) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert "the rest is not listed" in captured.err


def test_a_url_whose_driver_is_not_installed_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    assert call("runs", "list", "--out", "s3://user:pass@bucket/runs") == 2
    error = capsys.readouterr().err
    assert "pip install s3fs" in error
    assert "user:pass" not in error


class Forbidding(SimpleHTTPRequestHandler):
    """Tells of every file, and gives none whose path has the word."""

    def do_GET(self) -> None:
        if "secret" in self.path:
            self.send_error(403)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server of the test's folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Forbidding, directory=str(tmp_path))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_that_refuses_is_told_in_a_sentence(
    tmp_path: Path, served: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path)
    shutil.copytree(run.folder, tmp_path / "secret")
    for arguments in (("list", "--out", f"{served}/secret"), ("show", f"{served}/secret")):
        assert call("runs", *arguments) == 2
        assert "403" in capsys.readouterr().err
    tables = run.folder / "tables"
    shutil.move(tables / "factors.parquet", tables / "secret.parquet")
    run.record["tables"][0]["name"] = "secret"
    run.save()
    found = catalogue.open_run(f"{served}/{run.folder.relative_to(tmp_path).as_posix()}")
    with pytest.raises(InputError, match=r"cannot read the table(.|\n)*403"):
        found.read_table("secret")


def test_a_url_of_no_known_kind_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be opened here"):
        catalogue.list_runs("nosuch://bucket")


def test_a_place_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert catalogue.list_runs(tmp_path / "none") == []
    assert catalogue.list_runs("memory://none/at/all") == []


def test_links_are_not_followed_and_a_run_is_not_entered(tmp_path: Path) -> None:
    run = kept(tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert catalogue.list_runs(tmp_path / "runs") == []
    shutil.copytree(run.folder, run.folder / "inner")
    assert len(catalogue.list_runs(tmp_path / "elsewhere")) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfe", "unreadable"),
        (b"[" * 100_000, "unreadable"),
        (b"null", "no format_version"),
        (b'{"format_version": 1}', "missing"),
        (b'{"format_version": 99}', "newer workbench"),
        (b'{"format_version": 1e3}', "no format_version"),
    ],
)
def test_a_record_that_is_none_is_an_error_and_no_crash(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        catalogue.open_run(tmp_path)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["config", "tables", "inputs", "reasons", "verdict", "title", "run_id"])
def test_a_record_with_parts_of_another_type_is_refused(tmp_path: Path, name: str) -> None:
    run = kept(tmp_path)
    record = json.loads((run.folder / "run.json").read_text()) | {name: 7}
    (run.folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="not a run record"):
        catalogue.open_run(run.folder)


def test_a_record_or_table_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept(tmp_path)
    monkeypatch.setattr(catalogue, "MAX_TABLE_BYTES", 100)
    with pytest.raises(InputError, match="too large"):
        catalogue.open_run(run.folder).read_table("factors")
    monkeypatch.setattr(catalogue, "MAX_TABLE_BYTES", 10_000)
    monkeypatch.setattr(catalogue, "MAX_ROWS", 2)
    with pytest.raises(InputError, match="too many rows"):
        catalogue.open_run(run.folder).read_table("factors")
    monkeypatch.setattr(run_folder, "MAX_RECORD_BYTES", 100)
    with pytest.raises(InputError, match="too large"):
        catalogue.open_run(run.folder)


def test_a_record_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(InputError, match="not a regular file"):
        catalogue.open_run(tmp_path)


@pytest.mark.parametrize("name", ["../../secret", "a/b", "", ".hidden", 7, None, "x" * 200])
def test_a_record_cannot_name_a_file_outside_its_tables(tmp_path: Path, name: Any) -> None:
    run = kept(tmp_path)
    record = json.loads((run.folder / "run.json").read_text()) | {"tables": [{"name": name, "rows": 1}, 3]}
    (run.folder / "run.json").write_text(json.dumps(record))
    found = catalogue.open_run(run.folder)
    assert found.list_table_names() == []
    with pytest.raises(InputError, match="no such table"):
        found.read_table(str(name))


def test_runs_are_chosen_by_area_state_verdict_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = kept(tmp_path), kept(tmp_path, area="lore", verdict="invalid")
    died = run_folder.start_run("lore", tmp_path)
    release_lock(died.folder)
    for run, day in ((good, 1), (bad, 2), (died, 3)):
        record = json.loads((run.folder / "run.json").read_text())
        ended = f"2026-11-0{day}T12:00:00+00:00"
        record |= {"started_at": ended, "ended_at": ended if run is not died else None, "duration_s": 0.0}
        (run.folder / "run.json").write_text(json.dumps(record))

    def listed(*options: str) -> list[str]:
        assert call("runs", "list", "--out", str(tmp_path), "--json", *options) == 0
        return [run["run_id"] for run in json.loads(capsys.readouterr().out)["runs"]]

    assert listed() == [died.run_id, bad.run_id, good.run_id]
    assert listed("--area", "lore", "--verdict", "invalid") == [bad.run_id]
    assert listed("--status", "died") == [died.run_id]
    assert listed("--status", "running") == []
    assert listed("--since", "2026-11-02") == [died.run_id, bad.run_id]
    assert listed("--since", "2026-11-02T13:00+00:00") == [died.run_id]


@pytest.mark.parametrize(
    "options", [["--since", "yesterday"], ["--since", "99999999d"], ["--status", "fine"], ["--verdict", "good"]]
)
def test_a_filter_that_makes_no_sense_is_refused(tmp_path: Path, options: list[str]) -> None:
    assert call("runs", "list", "--out", str(tmp_path), *options) == 2


def test_an_age_counts_back_from_now() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    assert catalogue.parse_moment("2d", option="x", now=now) == datetime(2026, 11, 20, tzinfo=UTC)
    assert catalogue.parse_moment("90min", option="x", now=now) == datetime(2026, 11, 21, 22, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("started", "ended", "took_s", "began"),
    [
        ("2026-11-01T00:00:00+00:00", "2026-11-01T00:01:00+00:00", 60.0, "2026-11-01T00:00:00+00:00"),
        # The clock stood years back at the start, and was set right meanwhile.
        ("1970-01-01T00:00:05+00:00", "2026-11-01T00:01:00+00:00", 60.0, "2026-11-01T00:00:00+00:00"),
        ("2099-01-01T00:00:00+00:00", "2026-11-01T00:01:00+00:00", 60.0, "2026-11-01T00:00:00+00:00"),
        ("2026-11-01T02:00:00+02:00", None, None, "2026-11-01T00:00:00+00:00"),
        ("2026-11-01T00:00:00", None, None, "2026-11-01T00:00:00+00:00"),
        ("noon", 7, "long", "0001-01-01T00:00:00+00:00"),
        ("2026-11-01T00:00:00+00:00", "0001-01-01T00:00:00+00:00", 60.0, "2026-11-01T00:00:00+00:00"),
    ],
)
def test_a_run_is_sorted_by_the_clock_at_its_end(started: Any, ended: Any, took_s: Any, began: str) -> None:
    assert read_start_time({"started_at": started, "ended_at": ended, "duration_s": took_s}).isoformat() == began


def test_texts_of_a_record_cannot_steer_the_terminal_or_add_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path)
    record = json.loads((run.folder / "run.json").read_text()) | {
        "answer": "\x1b[31mred\nsecond \ud800 \x9b2J",
        "area": "a\x07b",
    }
    (run.folder / "run.json").write_text(json.dumps(record))
    for options in ([], ["--json"]):
        assert call("runs", "list", "--out", str(tmp_path), *options) == 0
        printed = capsys.readouterr().out
        assert not {"\x1b", "\x07", "\x9b"} & {*printed}
        assert options or len(printed.splitlines()) == 2


def test_a_run_that_ends_while_it_is_looked_at_is_shown_as_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder.start_run("lore", tmp_path)
    asked = find_holder

    def ends(folder: Path) -> int | None:
        if run.status == "running":
            run.conclude("valid", [], "Done.")
        return asked(folder)

    monkeypatch.setattr(run_folder, "find_holder", ends)
    (found,) = catalogue.list_runs(tmp_path)
    assert (found.state, found.record["answer"]) == ("succeeded", "Done.")


def test_a_run_that_ends_and_goes_while_it_is_looked_at_is_told_and_the_others_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept_run = (run_folder.start_run("lore", tmp_path) for _ in range(2))
    read_state = run_stores.LocalStore.read_state

    def remove(store: run_stores.LocalStore, root: str, record: dict[str, Any]) -> str:
        if Path(root) != gone.folder:
            return read_state(store, root, record)
        gone.conclude("valid", [], "Done.")
        (gone.folder / run_folder.RECORD_FILE).unlink()
        return "succeeded"

    monkeypatch.setattr(run_stores.LocalStore, "read_state", remove)
    told: list[InputError] = []
    assert [run.run_id for run in catalogue.list_runs(tmp_path, unreadable=told.append)] == [kept_run.run_id]
    assert "not a run folder" in str(told[0])


def test_a_figure_that_json_does_not_have_is_printed_as_null(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder.start_run("lore", tmp_path)
    run.record["config"] = {"top": [float("nan"), float("inf"), 1.5]}
    run.end("succeeded")
    run_output.print_run_list(str(tmp_path), area=None, status=None, since=None, verdict=None, as_json=True)
    printed = capsys.readouterr().out
    assert "NaN" not in printed
    assert json.loads(printed)["runs"][0]["config"] == {"top": [None, None, 1.5]}
