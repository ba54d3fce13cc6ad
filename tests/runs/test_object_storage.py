"""Runs on object storage: whole or not there, whatever fails; on moto's S3 server."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import s3_server
from tests.fakes.kept_runs import kept
from workbench.cli import app
from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError, WorkbenchError
from workbench.core.files import OUT_VARIABLE, default_out, default_place
from workbench.report.gallery import write_gallery
from workbench.runs import catalogue, compare, prune, run_folder, run_stores
from workbench.speedup.fleet import fleet_results

pytest.importorskip("s3fs")
pytest.importorskip("moto")

NOTEBOOKS = Path(__file__).parents[1] / "fakes" / "notebooks"
RUNS = f"s3://{s3_server.BUCKET}/runs"


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (run_folder.RUN_DIR_VARIABLE, OUT_VARIABLE, redaction.SECRET_NAMES_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3_server.Faults]:
    """A server with an empty bucket; what goes wrong in it."""
    import boto3
    import s3fs

    faults = s3_server.Faults()
    with s3_server.serve(faults) as address:
        for name, value in s3_server.client_environment(address).items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        boto3.client("s3").create_bucket(Bucket=s3_server.BUCKET)
        yield faults
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is sent again, by whatever would do it; before `faults`, whose clients read it."""
    monkeypatch.setattr(run_stores, "_FIRST_DELAY_S", 0.0)
    monkeypatch.setattr(run_stores, "_ATTEMPTS", 1)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(list(arguments))
    return int(ended.value.code or 0)


def read_objects() -> dict[str, bytes]:
    """Every object of the bucket, by its key, as the store has it."""
    import boto3

    client = boto3.client("s3")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=s3_server.BUCKET)
    keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
    return {key: client.get_object(Bucket=s3_server.BUCKET, Key=key)["Body"].read() for key in keys}


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copy(run: run_folder.Run, place: str = RUNS) -> str:
    return catalogue.copy_run(catalogue.open_run(run.folder), place)


@pytest.mark.live
def test_a_run_in_a_bucket_is_listed_shown_compared_checked_and_fetched_as_one_in_a_folder(
    tmp_path: Path, faults: s3_server.Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = kept(tmp_path / "runs"), kept(tmp_path / "runs", area="lore")
    (first.folder / "report.html").write_text("<p>page</p>")
    assert call("runs", "copy", first.run_id, second.run_id, "--to", RUNS, "--out", str(tmp_path / "runs")) == 0
    url = f"{RUNS}/speedup/{first.run_id}"
    assert url in capsys.readouterr().out
    assert {run.run_id for run in catalogue.list_runs(RUNS)} == {first.run_id, second.run_id}
    assert call("runs", "show", first.run_id, "--out", RUNS) == 0
    assert "Twice as fast." in capsys.readouterr().out
    assert call("runs", "diff", url, str(first.folder)) == 0
    assert call("gallery", RUNS) == 0
    assert capsys.readouterr().out.endswith(f"{RUNS}/index.html\n")
    page = read_objects()["runs/index.html"].decode()
    assert f'href="speedup/{first.run_id}/report.html"' in page
    # Back on this machine, to the byte.
    assert call("runs", "copy", url, "--to", str(tmp_path / "back")) == 0
    assert read_folder(tmp_path / "back" / "speedup" / first.run_id) == read_folder(first.folder)
    for key, content in read_objects().items():
        assert s3_server.SECRET.encode() not in content, key
        assert s3_server.KEY.encode() not in content, key


def test_many_runs_are_listed_with_one_request_each(tmp_path: Path, faults: s3_server.Faults) -> None:
    record = json.loads((kept(tmp_path).folder / "run.json").read_text())
    names = [f"run-{number:02d}" for number in range(40)]
    for name in names:
        write_object(f"runs/speedup/{name}/run.json", json.dumps(record | {"run_id": name}).encode())
        write_object(f"runs/speedup/{name}/tables/factors.parquet", b"")
    before = faults.done["requests"]
    assert sorted(run.run_id for run in catalogue.list_runs(RUNS)) == names
    assert faults.done["requests"] - before <= len(names) + 6


@pytest.mark.live
def test_a_bucket_is_pruned_and_says_that_it_has_no_locks(
    tmp_path: Path, faults: s3_server.Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = kept(tmp_path), kept(tmp_path)
    goes_on = run_folder.start_run("speedup", tmp_path / "live")
    for run in (old, new):
        copy(run)
    # As `aws s3 cp` would copy a run that goes on.
    store, root = run_stores.open_place(RUNS)
    store.put_file(goes_on.folder / "run.json", f"{root}/speedup/{goes_on.run_id}/run.json")
    goes_on.end("cancelled")
    assert call("runs", "prune", "--keep", "0", "--out", RUNS, "--yes") == 0
    captured = capsys.readouterr()
    assert "has no locks" in captured.err
    assert f"{goes_on.run_id}  speedup  unfinished" in captured.out
    assert [run.run_id for run in catalogue.list_runs(RUNS)] == [goes_on.run_id]
    assert call("runs", "prune", "--status", "unfinished", "--out", RUNS, "--yes") == 0
    assert read_objects() == {}


@pytest.mark.live
@pytest.mark.parametrize("n_requests", [0, 1, 2, 3, 4, 5])
def test_a_copy_that_is_cut_at_any_request_is_no_run_and_the_next_one_completes_it(
    tmp_path: Path, faults: s3_server.Faults, once: None, n_requests: int
) -> None:
    run = kept(tmp_path)
    faults.left = n_requests
    with pytest.raises(RunFailedError, match="cannot write the copy"):
        copy(run)
    faults.left = None
    if f"runs/speedup/{run.run_id}/run.json" in read_objects():
        # The last request alone failed: all is there.
        assert {key.split("/", 3)[3] for key in read_objects()} >= set(read_folder(run.folder))
    else:
        assert catalogue.list_runs(RUNS) == []
    copy(run)
    (there,) = catalogue.list_runs(RUNS)
    assert there.read_table("factors").height == 3
    # The third time there is nothing left to do.
    before = faults.done["requests"]
    copy(run)
    assert faults.done["requests"] - before <= 3


@pytest.mark.live
@pytest.mark.parametrize("n_requests", [1, 2, 3, 4, 5, 6])
def test_a_deletion_that_is_cut_leaves_no_half_run_and_the_next_one_goes_on(
    tmp_path: Path, faults: s3_server.Faults, once: None, n_requests: int
) -> None:
    run = kept(tmp_path)
    copy(run)
    doomed = prune.plan_pruning(RUNS, keep=0)
    faults.left = n_requests
    (done,) = prune.delete_runs(doomed)
    assert done.failed
    faults.left = None
    for there in catalogue.list_runs(RUNS):
        # Before the deletion began: still whole.
        assert there.read_table("factors").height == 3
    (again,) = prune.delete_runs(prune.plan_pruning(RUNS, keep=0))
    assert again.kept_because is None
    assert read_objects() == {}


def write_object(key: str, content: bytes | None) -> None:
    """Write, or delete, an object as another machine does: the store of this process does not notice."""
    import boto3

    client = boto3.client("s3")
    if content is None:
        client.delete_object(Bucket=s3_server.BUCKET, Key=key)
    else:
        client.put_object(Bucket=s3_server.BUCKET, Key=key, Body=content)


@pytest.mark.live
def test_what_another_machine_writes_after_a_listing_is_read(faults: s3_server.Faults) -> None:
    store, root = run_stores.open_place(RUNS)
    write_object("runs/old", b"old")
    assert len(store.list_entries(root)) == 1
    write_object("runs/old", b"changed")
    write_object("runs/new", b"new")
    assert store.read_bytes(f"{root}/new", 9) == b"new"
    store.list_entries(root)
    write_object("runs/old", b"changed again")
    assert store.read_bytes(f"{root}/old", 99) == b"changed again"


@pytest.mark.live
def test_a_run_that_is_deleted_while_it_is_fetched_is_no_run_here(
    tmp_path: Path, faults: s3_server.Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kept(tmp_path / "a")
    there = catalogue.open_run(copy(run))

    def list_half(store: run_stores.Store, root: str) -> list[tuple[str, int]]:
        for name in ("run.json", "tables/factors.parquet"):
            write_object(f"runs/speedup/{run.run_id}/{name}", None)
        return run_stores.list_files(store, root)

    (run.folder / "report.html").write_text("page")
    write_object(f"runs/speedup/{run.run_id}/report.html", b"page")
    monkeypatch.setattr(catalogue, "list_files", list_half)
    with pytest.raises(InputError, match="cannot read the run"):
        catalogue.copy_run(there, tmp_path / "b")
    assert catalogue.list_runs(tmp_path / "b") == []


@pytest.mark.live
def test_a_deletion_that_only_began_leaves_the_run_and_one_that_goes_on_takes_no_new_copy_along(
    tmp_path: Path, faults: s3_server.Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kept(tmp_path / "a")
    url = copy(run)
    key = f"runs/speedup/{run.run_id}"
    write_object(f"{key}/{catalogue.DELETED_RECORD}", read_objects()[f"{key}/run.json"])
    assert copy(run) == url
    back = catalogue.copy_run(catalogue.open_run(url), tmp_path / "b")
    assert read_folder(Path(back)) == read_folder(run.folder)
    # Listed before the deletion began, read after it took the record.
    write_object(f"{key}/{catalogue.DELETED_RECORD}", None)
    store, _ = run_stores.open_place(RUNS)
    seen = store.list_entries(f"{s3_server.BUCKET}/{key}")
    write_object(f"{key}/run.json", None)
    monkeypatch.setattr(run_stores.RemoteStore, "list_entries", lambda *_: seen)
    with pytest.raises(ConfigError, match="half deleted"):
        copy(run)


@pytest.mark.live
def test_a_store_that_does_not_answer_is_no_store_without_that_run(
    tmp_path: Path, once: None, faults: s3_server.Faults
) -> None:
    run, newest = kept(tmp_path), kept(tmp_path)
    for one in (run, newest):
        (one.folder / "report.html").write_text("<p>page</p>")
        copy(one)
    for name in (newest.run_id, newest.run_id[:-1], "speedup"):
        for n_requests in range(6):
            faults.left = n_requests
            try:
                assert catalogue.resolve_run(name, RUNS).run_id == newest.run_id
            except WorkbenchError as error:
                assert "cannot list" in error.what or "unreadable" in error.what, (name, n_requests)  # noqa: PT017
    for n_requests in range(12):
        faults.left = n_requests
        with contextlib.suppress(WorkbenchError):
            write_gallery(RUNS)
            faults.left = None
            page = read_objects()["runs/index.html"].decode()
            assert page.count("/report.html") >= 2, n_requests
    for n_requests, code in ((1, 2), (3, 2), (99, 0)):
        faults.left = n_requests
        assert call("runs", "list", "--out", RUNS) == code
    for n_requests in range(2):
        faults.left = None
        runs = catalogue.list_runs(RUNS)
        faults.left = n_requests
        with pytest.raises(InputError, match="cannot read the table"):
            compare.compare_runs(*runs)
    results = fleet_results.open_results(RUNS, "0" * 8)
    faults.left = 0
    for ask in (results.list_state, lambda: results.read_result("a"), lambda: results.delete_result("a")):
        with pytest.raises(RunFailedError, match="results cannot be read"):
            ask()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_with_one_request_in_twenty_failing_no_half_run_is_read_and_none_is_lost(
    tmp_path: Path, faults: s3_server.Faults
) -> None:
    made = [kept(tmp_path, area=("speedup", "sizing")[number % 2]) for number in range(40)]
    halves: list[str] = []
    ended = threading.Event()

    def read_all_the_time() -> None:
        while not ended.is_set():
            for there in catalogue.list_runs(RUNS, unreadable=lambda error: halves.append(str(error))):
                try:
                    assert there.read_table("factors").height == 3
                except (WorkbenchError, AssertionError) as error:
                    halves.append(f"{there.run_id}: {error}")

    faults.rate = 0.05
    reader = threading.Thread(target=read_all_the_time)
    reader.start()
    try:
        for run in made:
            copy(run)
    finally:
        ended.set()
        reader.join()
    copied = sum(faults.done[kind] for kind in faults.KINDS)
    assert halves == []
    assert {run.run_id for run in catalogue.list_runs(RUNS)} == {run.run_id for run in made}
    write_gallery(RUNS)
    done = prune.delete_runs(prune.plan_pruning(RUNS, keep=5))
    assert [one.kept_because for one in done] == [None] * 30
    faults.rate = 0.0
    assert len(catalogue.list_runs(RUNS)) == 10
    assert len(read_objects()) == 10 * len(read_folder(made[0].folder)) + 1
    assert copied >= 10
    print(dict(faults.done))


@pytest.mark.notebook
def test_a_notebook_runs_into_a_bucket_and_leaves_nothing_here(
    tmp_path: Path, faults: s3_server.Faults, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    notebook = NOTEBOOKS / "01_adds.ipynb"
    faults.rate = 0.05
    assert call("run", str(notebook), "--out", RUNS, "--json") == 0
    captured = capsys.readouterr()
    (document,) = json.loads(captured.out)["runs"]
    assert "copied to " + RUNS in captured.err
    assert document["folder"].startswith(f"{RUNS}/adds/")
    assert document["report"] == document["folder"] + "/report.html"
    (there,) = catalogue.list_runs(RUNS)
    assert (there.state, there.place) == ("succeeded", document["folder"])
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and "outgoing" in path.parts] == []


@pytest.mark.live
def test_what_cannot_be_copied_stays_here_and_the_command_says_how_to_go_on(
    tmp_path: Path, faults: s3_server.Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.execution import runner

    run = kept(tmp_path)
    monkeypatch.setattr(catalogue, "copy_run", _refuse)
    result = runner._move_run(runner.RunResult(Path("01_a.ipynb"), run), RUNS)
    assert (result.exit_code, result.place) == (3, str(run.folder))
    assert run.folder.is_dir()
    assert "no room" in result.build_document()["copy_error"]


def _refuse(*_: Any) -> str:
    raise RunFailedError("no room")


@pytest.mark.live
@pytest.mark.parametrize(
    ("place", "said"),
    [
        (f"s3://{s3_server.KEY}:{s3_server.SECRET}@bench/runs", "a secret cannot be part of a URL"),
        ("s3://no-such-bucket/runs", "cannot write there"),
        ("nosuch://bucket/runs", "this kind of URL cannot be opened here"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, faults: s3_server.Faults, capsys: pytest.CaptureFixture[str], place: str, said: str
) -> None:
    assert call("run", "start_here", "--out", place) == 2
    error = capsys.readouterr().err
    assert said in error
    assert s3_server.SECRET not in error
    assert call("runs", "copy", str(kept(tmp_path).folder), "--to", place) == 2


@pytest.mark.live
def test_a_run_that_goes_on_or_has_strange_names_is_not_copied(tmp_path: Path) -> None:
    run = run_folder.start_run("speedup", tmp_path)
    with pytest.raises(ConfigError, match="has ended"):
        copy(run, str(tmp_path / "to"))
    run.end("succeeded")
    for bad in ("../../up", "", "a/b", "/abs"):
        (run.folder / "run.json").write_text(json.dumps(run.record | {"area": bad}))
        with pytest.raises(ConfigError, match="not a name of a folder"):
            copy(run, str(tmp_path / "to"))
    assert not (tmp_path / "to").exists()


@pytest.mark.live
def test_another_run_in_its_place_stays(tmp_path: Path) -> None:
    run = kept(tmp_path / "a")
    place = Path(copy(run, str(tmp_path / "b")))
    record = (place / "run.json").read_text()
    (place / "run.json").write_text(record.replace("Twice", "Thrice"))
    with pytest.raises(ConfigError, match="another run is there"):
        copy(run, str(tmp_path / "b"))


@pytest.mark.live
def test_links_out_of_a_run_folder_are_not_copied(tmp_path: Path) -> None:
    run = kept(tmp_path / "a")
    (tmp_path / "private").write_text("private")
    os.symlink(tmp_path / "private", run.folder / "link.txt")
    assert not (Path(copy(run, str(tmp_path / "b"))) / "link.txt").exists()


def test_a_url_in_the_variable_is_a_place_and_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUT_VARIABLE, RUNS)
    assert default_place() == RUNS
    assert "s3:" not in str(default_out())


def test_a_bucket_that_is_not_there_is_no_empty_list(
    faults: s3_server.Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    assert catalogue.list_runs(RUNS) == []
    assert call("runs", "list", "--out", "s3://no-such-bucket/runs") == 2
    assert "no such bucket" in capsys.readouterr().err
