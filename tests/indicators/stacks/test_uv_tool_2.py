"""uv is called in a clean place, and what it says is cleaned."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.core.child_process import CommandResult
from workbench.core.errors import MissingToolError, RunFailedError
from workbench.indicators.stacks import uv_tool
from workbench.indicators.stacks.stack_sets import MAX_REASON
from workbench.indicators.stacks.uv_tool import Sources


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A script in uv's place; what it holds is up to the test."""
    path = tmp_path / "uv-stand-in"
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(uv_tool, "find_uv", lambda: str(path))
    uv_tool.read_uv_version.cache_clear()
    yield path
    uv_tool.read_uv_version.cache_clear()


def test_settings_that_change_an_answer_are_dropped_and_those_that_reach_the_index_kept() -> None:
    kept = {"PATH": "/bin", "UV_CACHE_DIR": "/cache"}
    dropped = {"UV_PRERELEASE": "allow", "UV_CONSTRAINT": "mine.txt", "UV_EXCLUDE_NEWER": "2020-01-01"}
    dropped |= {"VIRTUAL_ENV": "/venv", "PYTHONPATH": "/lib"}
    base = kept | dropped | {"UV_DEFAULT_INDEX": "https://other.example"}
    found = uv_tool.build_uv_environment(Sources(("https://uv.example/simple",)), base)
    assert kept.items() <= found.items()
    assert not dropped.keys() & found.keys()
    assert found["UV_DEFAULT_INDEX"] == "https://uv.example/simple"
    assert found["UV_PYTHON_DOWNLOADS"] == "never"


def test_a_project_in_the_users_folder_does_not_leak_in(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stand_in.write_text('#!/bin/sh\npwd\nls -A | wc -l\necho "$@"\n')
    folder, count, arguments = uv_tool.run_uv(["pip", "compile"], sources=None, offline=True).stdout.split("\n")[:3]
    assert Path(folder) != tmp_path
    assert (count.strip(), arguments) == ("0", "--no-config --offline pip compile")


def test_the_index_is_in_no_argument(stand_in: Path) -> None:
    stand_in.write_text('#!/bin/sh\necho "$@"; echo "$UV_DEFAULT_INDEX" >&2\n')
    said = uv_tool.run_uv(["pip"], sources=Sources(("https://ann:s3cret@uv.example/simple",)))
    assert (said.stdout, said.stderr.strip()) == ("--no-config pip\n", "https://ann:s3cret@uv.example/simple")
    assert uv_tool.explain_failure(said) == "(url)"


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("error: No\n  cause: Because a\n         and b.\n", "No. Because a and b"),
        ("  \x1b[31m×\x1b[0m No:\n  \x1b[31m╰─▶ \x1b[0mBecause a\n      and b.", "No:. Because a and b"),
        ("see https://ann:pw@host.example/simple/a, and file:///srv/x", "see (url) and (url)"),
        ("cannot read /srv/user/lib/x.py: no", "cannot read (path): no"),
        ("a/b and 1/2 stay, numpy>=1.0,<2 too", "a/b and 1/2 stay, numpy>=1.0,<2 too"),
        ("", ""),
    ],
)
def test_messages_lose_colours_frames_hosts_and_paths(raw: str, clean: str) -> None:
    assert uv_tool.clean_message(raw) == clean
    assert len(uv_tool.clean_message("word " * 10_000)) == MAX_REASON
    assert uv_tool.clean_message("word " * 10_000).endswith("…")
    assert uv_tool.explain_failure(CommandResult(1, "", "warning: old\nerror: it is not there")) == "it is not there"


def test_without_uv_the_install_command_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "uv", None)
    uv_tool.find_uv.cache_clear()
    try:
        with pytest.raises(MissingToolError, match="pip install uv") as caught:
            uv_tool.find_uv()
    finally:
        uv_tool.find_uv.cache_clear()
    assert caught.value.exit_code == 3


def test_a_uv_that_tells_no_version_does_not_end_or_cannot_start_is_told(stand_in: Path) -> None:
    with pytest.raises(RunFailedError, match="cannot read the version of uv"):
        uv_tool.read_uv_version()
    stand_in.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    with pytest.raises(RunFailedError, match="exceeded its time limit"):
        uv_tool.run_uv(["pip", "compile"], sources=None, timeout_s=0.2)
    stand_in.chmod(0o600)
    with pytest.raises(MissingToolError, match="cannot start uv"):
        uv_tool.run_uv(["--version"], sources=None)
