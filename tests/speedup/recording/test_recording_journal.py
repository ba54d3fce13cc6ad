"""A recording that is read is of somebody else: its paths stay inside, its fields are known, its logs are there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import InputError
from workbench.speedup.recording.recording_plan import load_recording

Json = dict[str, Any]


def session(label: str, number: int, **changed: Any) -> Json:
    made = {"label": label, "session": number, "status": "ok", "log": f"logs/{label}-s{number}.zstd", "n_passes": 2}
    return made | {"started_at": "2026-11-21T13:00:00Z", "duration_s": 1.5} | changed


def side(label: str) -> Json:
    return {"label": label, "engine": "spark", "settings": {}}


@pytest.fixture
def journal(tmp_path: Path) -> Callable[..., Path]:
    def write(**changed: Any) -> Path:
        content: Json = {
            "format_version": 1,
            "created_at": "2026-11-21T13:00:00Z",
            "package_version": "0.1.0",
            "seed": 0,
        }
        content |= {"suite": {"name": "mine", "queries": ["a"], "sha256": "0"}, "data": {"source": "folder"}}
        content |= {"n_sessions": 1, "n_passes": 2, "master": "local[2]", "settings": {}, "scrubbed": False}
        content |= {"sides": [side("x"), side("y")], "sessions": [session("y", 1), session("x", 1)]}
        folder = tmp_path / "recording"
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        for name in ("x-s1", "y-s1"):
            (folder / "logs" / f"{name}.zstd").touch()
        (tmp_path / "outside").touch()
        (folder / "recording.json").write_text(json.dumps(content | changed))
        return folder

    return write


def test_logs_come_by_sides_and_numbers_and_failed_sessions_have_none(journal: Callable[..., Path]) -> None:
    failed = session("x", 2, status="failed", log=None, error="died")
    found = load_recording(journal(sessions=[session("y", 1), failed, session("x", 1)]))
    assert [(label, number) for label, number, _ in found.iterate_logs()] == [("x", 1), ("y", 1)]
    assert [path.name for _, _, path in found.iterate_logs("y")] == ["y-s1.zstd"]
    assert found.labels == ["x", "y"]
    assert found.complete
    assert found.read_executions().height == 0


def test_queries_that_do_not_count_are_gathered_over_sides(journal: Callable[..., Path]) -> None:
    found = load_recording(journal(excluded={"x": {"a": "failed"}, "y": {"b": "wrong answer"}}))
    assert found.list_bad_queries() == {"a", "b"}


@pytest.mark.parametrize(
    "log", ["../outside", "/etc/passwd", "logs/../../outside", "", "C:\\x", "https://h/x", "a\\b", "a\0b"]
)
def test_a_path_outside_the_folder_is_refused(journal: Callable[..., Path], log: str) -> None:
    with pytest.raises(InputError, match="not a recording"):
        load_recording(journal(sessions=[session("x", 1, log=log)]))


def test_a_link_to_the_outside_is_refused(journal: Callable[..., Path]) -> None:
    folder = journal()
    (folder / "logs" / "x-s1.zstd").unlink()
    (folder / "logs" / "x-s1.zstd").symlink_to(folder.parent / "outside")
    with pytest.raises(InputError, match="is outside"):
        load_recording(folder)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"format_version": 2}, "newer workbench"),
        ({"format_version": "1.0"}, "not a recording"),
        ({"extra": 1}, "extra"),
        ({"sides": []}, "sides"),
        ({"sides": [side("x"), side("x")]}, "named twice"),
        ({"sides": [side("../x")]}, "not a recording"),
        ({"sessions": [session("z", 1)]}, "do not fit"),
        ({"sessions": [session("x", 1), session("x", 1)]}, "do not fit"),
        ({"sessions": [session("x", 9)]}, "is missing"),
        ({"sessions": [session("x", 0)]}, "greater than or equal to 1"),
        ({"n_passes": None}, "n_passes"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_reason(
    journal: Callable[..., Path], changed: Json, what: str
) -> None:
    with pytest.raises(InputError, match=what):
        load_recording(journal(**changed))


@pytest.mark.parametrize("content", ["", "[]", "null", "{", "[" * 100_000, "\ud800"])
def test_what_is_no_json_object_is_refused(journal: Callable[..., Path], content: str) -> None:
    folder = journal()
    (folder / "recording.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError):
        load_recording(folder)


def test_a_folder_without_one_says_how_to_record(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="workbench speedup record"):
            load_recording(folder)


def test_an_unknown_side_is_named(journal: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="no such side"):
        load_recording(journal()).find_side("z")
