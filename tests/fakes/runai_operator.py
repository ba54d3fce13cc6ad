"""The command `simulated-runai` beside a block: what makes jobs and pods of Run:ai's workloads on a local cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.core.child_process import ChildProcess

START_LIMIT_S = 60.0


@contextmanager
def run_simulated_runai(kubeconfig: Path, context: str | None = None) -> Iterator[int]:
    """Run it until the block ends; gives its process id once it watches everything."""
    command = [sys.executable, "-m", "workbench", "scaletest", "simulated-runai", "--kubeconfig", str(kubeconfig)]
    command += ["--context", context] if context else []
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with ChildProcess(command, env=environment, ends_with_thread=True) as child:
        child.wait_for_line(lambda line: "is running" in line, timeout_s=START_LIMIT_S)
        yield child.pid
