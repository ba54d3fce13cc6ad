"""What holds for all runs of a launcher, set up once: limits, no network, a user, a folder for private folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from workbench.indicators.running import kernel, limits, network, user
from workbench.indicators.running.wire import Setup

PREFIX = "workbench-run-"


@dataclass
class Surroundings:
    """What holds for all runs of this launcher."""

    setup: Setup
    groups: limits.Groups
    uid: int | None
    already: int
    isolation: dict[str, str]
    scratch: Path
    wakeup: int


def prepare(setup: Setup) -> Surroundings:
    """Enter the group, leave the network, choose the user, make the private folder."""
    os.chdir("/")
    os.umask(0o022)
    if setup.cpus:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setaffinity(0, setup.cpus)
    with contextlib.suppress(OSError):
        kernel.adopt_orphans()
    groups = limits.enter_groups(setup.limits)
    limits.remove_stale(groups)
    isolation = {"network": network.ISOLATED}
    if setup.limits.network:
        isolation = {"network": network.NOT_ISOLATED, "network reason": "asked for"}
    elif refused := network.isolate():
        isolation = {"network": network.NOT_ISOLATED, "network reason": refused}
    uid = _user(setup, isolation)
    already = 0
    if uid is None and groups.processes is None:
        # In a namespace of its own only this launcher counts beside the run; else all that the user has running.
        inside = isolation["network"] == network.ISOLATED and os.geteuid() != 0
        already = 1 if inside else limits.tasks_of(os.getuid())
    bound = uid is not None or os.geteuid() != 0
    isolation |= limits.in_words(setup.limits, groups, bound)
    scratch = _scratch(setup.scratch)
    return Surroundings(setup, groups, uid, already, isolation, scratch, _wakeup())


def _user(setup: Setup, isolation: dict[str, str]) -> int | None:
    """The user of the runs; null for this process's own. Notes which in `isolation`."""
    isolation["user"] = "same as the workbench's"
    if os.geteuid() != 0:
        return None
    isolation["user"] = "root"
    uid = user.free_user()
    if uid is None:
        isolation["user reason"] = "no free user id"
        return None
    refused = None
    try:
        user.make_reachable([*user.roots([*setup.pythons, sys.executable])])
    except OSError as error:
        refused = str(error)
    if refused := refused or user.can_execute(uid, setup.pythons):
        isolation["user reason"] = refused
        return None
    isolation["user"] = "unprivileged, of its own"
    return uid


def _scratch(parent: str) -> Path:
    """A folder for the private folders of runs; those of launchers that were killed are removed."""
    for place in (parent, tempfile.gettempdir(), "/tmp"):  # noqa: S108 - made by mkdtemp
        if user.closed_folder(place) is None or os.geteuid() != 0:
            with contextlib.suppress(OSError):
                _remove_stale(Path(place))
                made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
                made.chmod(0o711)
                return made
    raise OSError("no folder for private folders of runs")


def _remove_stale(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*-*"):
        number = folder.name.removeprefix(PREFIX).partition("-")[0]
        if number.isdigit() and not Path(f"/proc/{number}").exists() and folder.stat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def _wakeup() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader
