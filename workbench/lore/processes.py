"""A replay started from a session that goes on: a process, and so a JVM, of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, InputError, RunFailedError

if TYPE_CHECKING:
    from workbench.lore.replaying import Replayed

TIMEOUT_S = 3600


def replayed(folder: str, **options: Any) -> Replayed:
    """What `workbench lore replay` finds in a process of its own.

    Raises
    ------
    InputError
        It refused the dump; with its own words.
    RunFailedError
        It died, or took longer than an hour.
    """
    from workbench.lore.replaying import Options, Replayed

    known = Options.model_fields
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError("unknown option of a replay", found=unknown, allowed=sorted(known))
    command = [sys.executable, "-m", "workbench", "lore", "replay", folder, "--json", *_arguments(options)]
    # This session's own arguments for a JVM must not reach the fresh one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "_PYSPARK"))}
    try:
        done = subprocess.run(  # noqa: S603
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError("the replay took too long and was ended", found=f"{TIMEOUT_S} s") from error
    if done.returncode in (0, 1) and done.stdout.lstrip().startswith("{"):
        return Replayed.model_validate_json(done.stdout)
    message = done.stderr.strip()[-4000:]
    if done.returncode == 2:
        raise InputError("the replay was refused", found=message)
    raise RunFailedError("the replay died", found=f"exit code {done.returncode}\n{message}")


def _arguments(options: dict[str, Any]) -> list[str]:
    flags = {"confs": "--conf", "confs_a": "--a", "confs_b": "--b"}
    found: list[str] = []
    for name, value in options.items():
        if name in flags:
            for key, one in value.items():
                found += [flags[name], f"{key}={one}"]
        elif value is True:
            found.append(f"--{name}")
        elif value not in (None, False):
            found += [f"--{name.replace('_', '-')}", str(value)]
    return found
