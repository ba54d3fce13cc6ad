"""A replay or a search started from a session that goes on: a process, and so a JVM, of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from workbench.errors import ConfigError, InputError, RunFailedError

if TYPE_CHECKING:
    from workbench.lore.bisecting import Bisected
    from workbench.lore.replaying import Replayed

TIMEOUT_S = 3600
Answer = TypeVar("Answer", bound=BaseModel)


def replayed(folder: str, **options: Any) -> Replayed:
    """What `workbench lore replay` finds in a process of its own.

    Raises
    ------
    ConfigError
        It has no such option.
    InputError
        It refused the dump; with its own words.
    RunFailedError
        It died, or took longer than an hour.
    """
    from workbench.lore.replaying import Options, Replayed

    return _answer("replay", folder, options, Options, Replayed)


def bisected(folder: str, **options: Any) -> Bisected:
    """What `workbench lore bisect` finds in a process of its own; errors as of `replayed`."""
    from workbench.lore.bisecting import Bisected, BisectOptions

    return _answer("bisect", folder, options, BisectOptions, Bisected)


def _answer(verb: str, folder: str, options: dict[str, Any], known: type[BaseModel], answer: type[Answer]) -> Answer:
    if unknown := sorted(set(options) - set(known.model_fields)):
        raise ConfigError(f"unknown option of lore {verb}", found=unknown, allowed=sorted(known.model_fields))
    command = [sys.executable, "-m", "workbench", "lore", verb, folder, "--json", *_arguments(options)]
    # This session's own arguments for a JVM must not reach the fresh one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "_PYSPARK"))}
    try:
        done = subprocess.run(  # noqa: S603
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"lore {verb} took too long and was ended", found=f"{TIMEOUT_S} s") from error
    if done.returncode in (0, 1) and done.stdout.lstrip().startswith("{"):
        return answer.model_validate_json(done.stdout)
    message = done.stderr.strip()[-4000:]
    if done.returncode == 2:
        raise InputError(f"lore {verb} was refused", found=message)
    raise RunFailedError(f"lore {verb} died", found=f"exit code {done.returncode}\n{message}")


def _arguments(options: dict[str, Any]) -> list[str]:
    flags = {"confs": "--conf", "confs_a": "--a", "confs_b": "--b"}
    found: list[str] = []
    for name, value in options.items():
        if name in flags:
            for key, one in value.items():
                found += [flags[name], f"{key}={one}"]
        elif value is True:
            found.append(f"--{name}")
        elif value is not None and value is not False:
            found += [f"--{name.replace('_', '-')}", str(value)]
    return found
