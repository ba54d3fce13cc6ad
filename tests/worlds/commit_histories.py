"""Repositories of a small package whose commits are built: one of them makes its work slower or faster, or none."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "planted-work"
version = "{version}"
"""
MODULE = '''"""Planted work. {remark}"""

{helper}

def work(n=60_000):
    total = 0
    for i in range(n * {cost} // 100):
        total += i * i % 7
    return n
'''
# The median of several calls, as tools that time functions take it: one call of some milliseconds is mostly noise.
SCRIPT = """import json, statistics, time
import planted_work
times = []
for _ in range(15):
    began = time.process_time()
    answer = planted_work.work()
    times.append(time.process_time() - began)
taken = statistics.median(times)
print(json.dumps({"name": "work", "@parameters": {}, "@result": {"work_time": taken, "answer": answer}}))
"""
BROKEN = "raise RuntimeError('this commit does not start')\n"


@dataclass(frozen=True)
class History:
    """A repository with its planted commit; null: none. `n_commits`: After the first one."""

    folder: Path
    n_commits: int
    planted: str | None
    ratio: float


def run_git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=planted", "-c", "user.email=planted@localhost", "-c", "commit.gpgsign=false"]
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout.strip()


def write_history(seed: int, folder: Path, *, is_planted: bool) -> History:
    """Draw a history: changes of texts, helpers and versions, merges, commits that do not start, one that matters."""
    rng = np.random.default_rng(seed)
    n_commits = int(rng.integers(6, 40))
    at = int(rng.integers(1, n_commits + 1)) if is_planted else None
    ratio = float(rng.choice([1.15, 1.3, 1.6, 2.5])) ** int(rng.choice([1, 1, -1]))
    # Neither an end nor a neighbour of the planted one, so that the answer is a single commit.
    others = [place for place in range(1, n_commits) if at is None or abs(place - at) > 1]
    broken = set(rng.choice(others, min(2, len(others)), replace=False).tolist()) if rng.random() < 0.3 else set()
    package = folder / "src" / "planted_work"
    package.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main")
    cost, version, helper, planted = 100, 0, "", None
    for place in range(n_commits + 1):
        if place == at:
            cost = round(100 * ratio)
        if rng.random() < 0.2:
            version += 1
        if rng.random() < 0.4:
            helper = f"def help_{place}(value):\n    return value * {place}\n"
        text = MODULE.format(remark=f"Change {place}.", helper=helper, cost=cost)
        (package / "__init__.py").write_text(BROKEN if place in broken else text)
        (folder / "pyproject.toml").write_text(PROJECT.format(version=f"0.{version}.0"))
        is_merged = place not in (0, at) and rng.random() < 0.15
        if is_merged:
            run_git(folder, "checkout", "-q", "-b", f"side{place}")
        run_git(folder, "add", "-A")
        run_git(folder, "commit", "-q", "--allow-empty", "-m", f"Change {place}")
        if is_merged:
            run_git(folder, "checkout", "-q", "main")
            run_git(folder, "merge", "-q", "--no-ff", "-m", f"Merge {place}", f"side{place}")
        if place == at:
            planted = run_git(folder, "rev-parse", "HEAD")
    return History(folder, n_commits, planted, ratio)
