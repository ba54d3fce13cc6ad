"""Commits as versions: which, in which order, and a wheel that names its commit and installs as the project's own."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tests.worlds.commit_histories import run_git, write_history
from workbench.cli import app
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.stacks.commits import CommitBuilder, list_commits, stamp_wheel


def write_wheel(folder: Path) -> Path:
    path = folder / "my_work-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("my_work/__init__.py", "x = 1\n")
        wheel.writestr("my_work-1.2.0.data/scripts/tool", "#!python\n")
        wheel.writestr(
            "my_work-1.2.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: my-work\nVersion: 1.2.0\n\nVersion: no\n"
        )
        wheel.writestr("my_work-1.2.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr("my_work-1.2.0.dist-info/RECORD", "stale\n")
    return path


def test_a_stamped_wheel_is_whole_and_names_its_commit(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    stamped = stamp_wheel(write_wheel(tmp_path), tmp_path / "kept", "12.gabcdef123")
    name, version, _, _ = parse_wheel_filename(stamped.name)
    assert (name, str(version)) == ("my-work", "1.2.0+12.gabcdef123")
    with zipfile.ZipFile(stamped) as wheel:
        names = set(wheel.namelist())
        info = "my_work-1.2.0+12.gabcdef123.dist-info"
        assert names == {
            "my_work/__init__.py", "my_work-1.2.0+12.gabcdef123.data/scripts/tool", f"{info}/METADATA", f"{info}/WHEEL",
            f"{info}/RECORD",
        }  # fmt: skip
        assert b"Version: 1.2.0+12.gabcdef123\n\nVersion: no" in wheel.read(f"{info}/METADATA")
        lines = wheel.read(f"{info}/RECORD").decode().splitlines()
        assert lines[-1] == f"{info}/RECORD,,"
        for line in lines[:-1]:
            path, digest, size = line.split(",")
            content = wheel.read(path)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content))


def test_later_commits_are_later_versions() -> None:
    assert Version("0.3.0+9.gfff") < Version("0.3.0+10.g000") < Version("0.4.0+11.gaaa")


def test_commits_are_those_of_the_first_parent_line_with_both_ends(tmp_path: Path) -> None:
    history = write_history(3, tmp_path, is_planted=True)
    commits = list_commits(tmp_path, f"HEAD~{history.n_commits}..main")
    assert len(commits) == history.n_commits + 1
    assert [commit.number for commit in commits] == list(range(1, history.n_commits + 2))
    assert history.planted in [commit.sha for commit in commits]
    merged = [commit.subject for commit in commits if commit.subject.startswith("Merge")]
    assert merged, "the seed has a merge"
    assert commits[-1].sha == run_git(tmp_path, "rev-parse", "HEAD")


@pytest.mark.parametrize("ends", ["HEAD", "HEAD..HEAD", "main..HEAD~2", "none..HEAD", "--all..HEAD", "a b..HEAD"])
def test_what_is_no_range_is_refused(ends: str, tmp_path: Path) -> None:
    write_history(3, tmp_path, is_planted=False)
    with pytest.raises(ConfigError):
        list_commits(tmp_path, ends)


def test_outside_of_a_repository_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a commit"):
        list_commits(tmp_path, "a..b")


@pytest.mark.network
def test_a_commit_is_built_once_and_the_repository_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository = tmp_path / "repo"
    repository.mkdir()
    write_history(3, repository, is_planted=True)
    (repository / "mine.txt").write_text("not committed")
    before = run_git(repository, "status", "--porcelain"), run_git(repository, "worktree", "list")
    commits, builder = list_commits(repository, "HEAD~1..HEAD"), CommitBuilder(repository)
    wheel = builder.build_wheel(commits[1])
    assert f"g{commits[1].short}" in wheel.name
    assert builder.build_wheel(commits[1]) == wheel
    stack = builder.solve_commit(commits[1], ["packaging==24.2"], max_download_bytes=10**8)
    assert stack.versions == {"packaging": "24.2", "planted-work": str(parse_wheel_filename(wheel.name)[1])}
    assert (run_git(repository, "status", "--porcelain"), run_git(repository, "worktree", "list")) == before


@pytest.mark.network
def test_a_commit_that_cannot_be_built_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository = tmp_path / "repo"
    repository.mkdir()
    write_history(3, repository, is_planted=True)
    (repository / "pyproject.toml").write_text("[project\n")
    run_git(repository, "commit", "-qam", "Break the build")
    with pytest.raises(RunFailedError, match="cannot build the commit") as caught:
        CommitBuilder(repository).build_wheel(list_commits(repository, "HEAD~1..HEAD")[1])
    assert "Break the build" in str(caught.value)


def test_a_resumed_series_refuses_what_it_would_ignore(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["indicators", "commits", "a..b", "--resume", "missing", "--rounds", "9", "--subfolder", "x"])
    assert ended.value.code == 2
    assert "found: OLD..NEW, --subfolder, --rounds" in capsys.readouterr().err
