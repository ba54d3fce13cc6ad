"""Planted histories of a package that is built: the commit is found, and no commit is blamed where none did it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.commit_histories import SCRIPT, write_history

# Seeds 0 to 9 were looked at.
SEEDS, UNCHANGED = range(100, 124), range(200, 224)


def search(seed: int, folder: Path, *, is_planted: bool) -> dict[str, Any]:
    """The answer for a history; one that was found before is read."""
    place = folder / f"{seed}.json"
    if not place.exists():
        history = write_history(seed, folder / f"repo{seed}", is_planted=is_planted)
        (folder / "bench.py").write_text(SCRIPT)
        command = [
            sys.executable,
            "-m",
            "workbench",
            "indicators",
            "bisect",
            "--commits",
            f"HEAD~{history.n_commits}..HEAD",
        ]
        command += ["--repository", str(history.folder), "--script", str(folder / "bench.py")]
        command += ["--rounds", "10,20,40,80", "--out", str(folder / f"out{seed}"), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        assert done.returncode in (0, 1), done.stderr
        found = json.loads(done.stdout) | {"planted": history.planted, "planted_ratio": history.ratio}
        place.write_text(json.dumps(found))
        # The repository is as it was.
        for arguments, expected in ((["status", "--porcelain"], ""), (["worktree", "list"], None)):
            told = subprocess.run(["git", "-C", history.folder, *arguments], capture_output=True, text=True, check=True)
            assert told.stdout == expected if expected is not None else told.stdout.count("\n") == 1
    found = json.loads(place.read_text())
    print(seed, (found["planted"] or "")[:9], found["planted_ratio"], found["answer"], flush=True)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept = Path(os.environ.get("KEPT_CASES") or tmp_path) / "commits"
    kept.mkdir(parents=True, exist_ok=True)
    return kept


@pytest.mark.live
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(20_000)
def test_the_planted_commit_is_found(folder: Path) -> None:
    cases = [search(seed, folder, is_planted=True) for seed in SEEDS]
    right = [case for case in cases if case["version"] and case["planted"].startswith(case["version"])]
    wrong = [case for case in cases if case["version"] and not case["planted"].startswith(case["version"])]
    assert wrong == []
    assert len(right) >= 23


@pytest.mark.live
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(20_000)
def test_no_commit_is_blamed_where_none_changed_the_work(folder: Path) -> None:
    assert [case["answer"] for seed in UNCHANGED if (case := search(seed, folder, is_planted=False))["version"]] == []
