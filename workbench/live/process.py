"""Runs that a panel starts: `workbench run` as a process of its own, which outlives the kernel and is found again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import runs
from workbench.errors import InputError

PREFIX = "wb-panel-"
"""Begins the name of the folder of a started run's settings; by it a panel's process is told from others."""
MOST_RUNS = 50
_TAIL_CHARS = 4_000
_MOST_PROGRESS_BYTES = 10_000


@dataclass
class Started:
    """A process that was started here, and the private folder of its settings and its words."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def ended(self) -> bool:
        """Is it over?"""
        return self.process.poll() is not None

    @property
    def words(self) -> str:
        """The end of what it printed."""
        with contextlib.suppress(OSError):
            return (self.folder / "words").read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARS:]
        return ""

    def tidy(self) -> None:
        """Remove its private folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def start(notebook: Path, values: Mapping[str, Any], out: Path) -> Started:
    """Start `workbench run` on a notebook as it was saved, with these parameters.

    It gets a session of its own: a kernel that is restarted ends what is in its group.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        return Started(_process(notebook, values, out, folder), folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _process(notebook: Path, values: Mapping[str, Any], out: Path, folder: Path) -> subprocess.Popen[bytes]:
    import yaml

    settings = folder / "settings.yaml"
    # Not JSON: YAML takes its 1e-05 for a text, and its escapes of signs beyond 16 bits for two halves. By way of
    # JSON: what is held twice would become an alias, which a file of parameters may not have.
    text = yaml.safe_dump(json.loads(json.dumps(dict(values))), allow_unicode=True, sort_keys=False)
    settings.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "workbench", "run", str(notebook), "-f", str(settings), "--out", str(out)]
    env = {name: value for name, value in os.environ.items() if name != runs.RUN_DIR_VARIABLE}
    with open(folder / "words", "wb") as words:
        return subprocess.Popen(  # noqa: S603
            command,
            cwd=notebook.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def recent(out: Path, areas: Iterable[str], most: int = MOST_RUNS) -> list[runs.Run]:
    """The newest runs of these areas, newest first; records that cannot be read are left out."""
    folders: list[Path] = []
    for area in areas:
        with contextlib.suppress(OSError), os.scandir(out / area) as entries:
            folders += [Path(one.path) for one in entries if one.is_dir()]
    found: list[runs.Run] = []
    # Run ids begin with their UTC start.
    for folder in sorted(folders, key=lambda one: one.name, reverse=True):
        if len(found) == most:
            break
        with contextlib.suppress(InputError):
            found.append(runs.load(folder))
    return found


def is_running(run: runs.Run) -> bool:
    """Does a process write it now, other than a kernel in which its cells are run by hand?"""
    return run.status == "running" and run.record.get("command") != "live" and runs.holder(run.folder) is not None


def cancellable(run: runs.Run) -> int | None:
    """The process that runs it, when a panel started it: one that runs nothing else, and may be ended; else null."""
    pid = runs.holder(run.folder)
    return pid if pid is not None and private_folder(pid) is not None else None


def private_folder(pid: int) -> Path | None:
    """The folder that a panel made for this process; null for a process that no panel started."""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return None
    folders = (Path(word).parent for word in words)
    return next((one for one in folders if one.name.startswith(PREFIX) and one.parent == _temporary()), None)


def _temporary() -> Path:
    return Path(tempfile.gettempdir())


def cancel(pid: int) -> None:
    """End a run as a terminal's Ctrl-C would; kernels ignore that signal, and so do their children, so this is TERM."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)


@dataclass(frozen=True)
class Progress:
    """Which cell is next (from 0), of how many, and the heading above it."""

    cell: int
    cells: int
    label: str


def progress(run: runs.Run) -> Progress | None:
    """How far a run is; null where nothing is known."""
    try:
        with open(run.folder / runs.PROGRESS, "rb") as file:
            told = json.loads(file.read(_MOST_PROGRESS_BYTES))
        cell, cells, label = told["cell"], told["cells"], str(told["label"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    good = all(isinstance(one, int) and not isinstance(one, bool) for one in (cell, cells)) and 0 <= cell <= cells
    return Progress(cell, cells, label[:200]) if good else None
