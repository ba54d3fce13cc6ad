"""Record results of asv on a tiny repository: python data/samples/indicators/asv/record.py OUT

Needs git, and asv with virtualenv on PATH, in an environment of their own. The repository has three commits: the second
one is faster, and before the third one a benchmark changes, so that its version does, too. OUT must not exist. The
machine is called "sample"; a result that names this one or a path of it is refused.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3]))

from workbench.core.errors import RunFailedError  # noqa: E402
from workbench.core.host import read_host_facts  # noqa: E402

SETUP = 'from setuptools import setup\n\nsetup(name="tiny", version="0.1", py_modules=["tiny"])\n'
SLOW = "def total(n):\n    return sum(range(n))\n"
FAST = "def total(n):\n    return n * (n - 1) // 2\n"
SUITE = """
from tiny import total


class Sums:
    params = ([100, 1000], ["quick", "plain"])
    param_names = ["n", "way"]
    repeat, number, rounds, warmup_time = 3, 10, 2, 0

    def setup(self, n, way):
        if n == 1000 and way == "plain":
            raise NotImplementedError("not for this one")

    def time_total(self, n, way):
        total(n)


def mem_list():
    return [0] * 255


def time_broken():
    raise ValueError("broken")


def time_changed():
    total(CHANGED)


time_changed.repeat, time_changed.number, time_changed.rounds, time_changed.warmup_time = 2, 5, 1, 0


def track_ratio():
    return 0.5


track_ratio.unit = "ratio"
"""
SETTINGS = {
    "version": 1,
    "project": "tiny",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "virtualenv",
    "pythons": [f"{sys.version_info.major}.{sys.version_info.minor}"],
    "benchmark_dir": "benchmarks",
    "results_dir": "results",
    "matrix": {"req": {"six": ["1.16.0"]}, "env_nobuild": {"TINY_MODE": ["on"]}},
    "build_command": ["python -m pip wheel --no-deps --no-build-isolation -w {build_cache_dir} {build_dir}"],
}


def run_command(*command: str, folder: Path, date: str = "2026-11-01T12:00:00Z") -> None:
    """Run a command in the repository, with a home of its own and a fixed date of commits."""
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "sample")
    mails = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "sample@example.org")
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), date)
    env = {**os.environ, "HOME": str(folder.parent), **names, **mails, **dates}
    subprocess.run(command, cwd=folder, env=env, check=True)


def commit_files(folder: Path, files: dict[str, str], day: int) -> None:
    """Write the files and commit them, on a day of November 2026."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    run_command("git", "add", *files, folder=folder)
    run_command("git", "commit", "-qm", f"day {day}", folder=folder, date=f"2026-11-{day:02}T12:00:00Z")


def measure_commits(folder: Path, commits: str) -> None:
    """Measure a range of commits, with samples; a benchmark fails on purpose, so asv's exit code is not looked at."""
    command = ("asv", "run", "--record-samples", "--machine", "sample", commits)
    run_command("sh", "-c", f"{' '.join(command)} || true", folder=folder)


def record_results(out: Path) -> None:
    """Make the repository, measure its commits, and copy asv's results to `out`."""
    facts = read_host_facts()
    machine = {"machine": "sample", "os": "Linux", "arch": platform.machine(), "ram": str(facts["memory_bytes"])}
    machine |= {"cpu": facts["cpu_model"], "num_cpu": str(facts["cores"])}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "tiny"
        folder.mkdir()
        run_command("git", "init", "-q", "-b", "main", folder=folder)
        suite = {"benchmarks/__init__.py": "", "benchmarks/suite.py": SUITE.replace("CHANGED", "200")}
        files = {"setup.py": SETUP, "asv.conf.json": json.dumps(SETTINGS), ".gitignore": "results\nenv\n", **suite}
        commit_files(folder, {**files, "tiny.py": SLOW}, 1)
        commit_files(folder, {"tiny.py": FAST}, 2)
        # `asv machine` drops the facts that are those of this machine.
        (Path(place) / ".asv-machine.json").write_text(json.dumps({"version": 1, "sample": machine}))
        measure_commits(folder, "ALL")
        commit_files(folder, {"benchmarks/suite.py": SUITE.replace("CHANGED", "300")}, 3)
        measure_commits(folder, "HEAD^!")
        texts = [file.read_text() for file in (folder / "results").rglob("*.json")]
        if any(name in text for text in texts for name in (place, platform.node())):
            raise RunFailedError("a result names this machine or a path of it", where=folder)
        shutil.copytree(folder / "results", out)


if __name__ == "__main__":
    record_results(Path(sys.argv[1]))
