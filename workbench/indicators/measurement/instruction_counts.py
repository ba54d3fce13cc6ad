"""Instructions that the whole process of a script takes: a figure for machines whose times are too noisy to tell.

It is another metric than time, and named as such: waiting, memory and other cores do not count, and an instruction is
not a second.
"""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workbench.core import files
from workbench.core.child_process import run_command
from workbench.core.errors import MissingToolError, RunFailedError
from workbench.indicators.contract.script_declaration import ScriptDeclaration
from workbench.indicators.measurement.launcher_client import build_clean_environment
from workbench.stats import Interval

N_RUNS = 3
_TIMEOUT_S = 3600.0
_METHOD = "least and most of the counts"
_PERF = ("perf", "stat", "-x", ",", "-e", "instructions:u")
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_COUNTED = re.compile(r"^(\d+),[^,]*,instructions:u|^==\d+== I +refs: +([\d,]+)", re.MULTILINE)


@functools.cache
def find_counter() -> tuple[str, ...]:
    """The command that counts: perf where this machine lets it, else valgrind, 50 times slower."""
    if shutil.which("perf") and _COUNTED.search(run_command([*_PERF, "true"], timeout_s=10).stderr):
        return _PERF
    if shutil.which("valgrind"):
        return _VALGRIND
    raise MissingToolError("instructions cannot be counted", where="--count", do="install perf or valgrind")


def count_instructions(python: str, script: ScriptDeclaration, threads: int) -> int:
    """Instructions in user mode of one run, from the interpreter's start to its end."""
    with tempfile.TemporaryDirectory(prefix="workbench-count-") as scratch:
        for name, text in script.sources.items():
            files.write_text(Path(scratch) / name, text)
        environment = build_clean_environment(threads, script.variables) | {"HOME": scratch}
        command = [*find_counter(), python, "-B", "script.py"]
        ended = run_command(command, timeout_s=_TIMEOUT_S, cwd=scratch, env=environment)
    found = _COUNTED.search(ended.stderr)
    if ended.exit_code or found is None:
        raise RunFailedError("a counted run failed", where=script.name, found=ended.last_lines[-400:] or None)
    return int((found[1] or found[2]).replace(",", ""))


def compare_counts(base: Sequence[int], head: Sequence[int]) -> Interval:
    """Ratio of counts, between the extremes: they differ by little from run to run, and not like noise.

    >>> compare_counts([100, 101], [50, 50]).estimate
    2.01
    """
    estimate = sum(base) * len(head) / (sum(head) * len(base))
    low, high = min(base) / max(head), max(base) / min(head)
    return Interval(estimate, low, high, 0.95, min(len(base), len(head)), _METHOD)
