"""What is written: the result's tables, the recommended stack as lock files, the stacks to measure next."""

from __future__ import annotations

from pathlib import Path

from workbench import files
from workbench.errors import ConfigError, InputError
from workbench.indicators.recommending.result import Recommendation
from workbench.indicators.recommending.tables import EXCLUDED, JUSTIFICATIONS, PROPOSALS, RECOMMENDATIONS
from workbench.indicators.stacks import model
from workbench.indicators.stacks.model import Stack, StackSet
from workbench.indicators.stacks.pylock import pylock


def stacks_of(folder: Path, given: Path | None) -> StackSet | None:
    """The solved stacks of a session: those of its own stacks.json, or of another file; null when there is none.

    Raises
    ------
    InputError
        The file cannot be used.
    """
    if given is not None:
        return model.read(given)
    return model.read(folder) if (folder / model.FILE_NAME).is_file() else None


def write_tables(found: Recommendation, folder: Path) -> list[Path]:
    """Write the four tables into a folder, each whole or not at all.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    pairs = [(RECOMMENDATIONS, found.table), (EXCLUDED, found.excluded), (JUSTIFICATIONS, found.justifications)]
    try:
        return [table.write(frame, folder) for table, frame in [*pairs, (PROPOSALS, found.proposals)]]
    except OSError as error:
        raise ConfigError(
            "cannot write the tables", where=folder, found=error.strerror, do="choose --out DIR"
        ) from error  # fmt: skip


def write_requirements(found: Recommendation, stacks: StackSet | None, path: Path) -> Path:
    """Write the recommended stack's lock as a requirements file with hashes."""
    return _write(path, recommended(found, stacks, "--requirements").lock)


def write_pylock(found: Recommendation, stacks: StackSet | None, path: Path) -> Path:
    """Write the recommended stack as pylock.toml; the index is asked where the files are."""
    return _write(path, pylock(recommended(found, stacks, "--pylock")))


def write_next(found: Recommendation, stacks: StackSet | None, path: Path) -> Path:
    """Write the session's baseline and the proposed stacks as a set that can be measured.

    A baseline that a constraint left out is in it, too: figures of two sessions meet in it.
    """
    if stacks is None:
        raise _no_stacks("--next-stacks")
    keys = list(dict.fromkeys([found.baseline_key, *found.proposals["stack_key"]]))
    known = {stack.key: stack for stack in stacks.stacks}
    if missing := [key[:12] for key in keys if key not in known]:
        raise InputError(
            "a stack is not among the solved ones", where="--next-stacks", found=missing, do="give --stacks"
        )
    chosen = stacks.model_copy(update={"stacks": tuple(known[key] for key in keys)})
    return _write(path, model.as_json(chosen))


def recommended(found: Recommendation, stacks: StackSet | None, where: str) -> Stack:
    """The recommended stack with its lock.

    Raises
    ------
    InputError
        The solved stacks are not at hand, or it is not among them.
    """
    if stacks is None:
        raise _no_stacks(where)
    for stack in stacks.stacks:
        if stack.key == found.key:
            return stack
    raise InputError(
        "the recommended stack is not among the solved ones", where=where, found=found.answer.stack,
        allowed=[stack.name for stack in stacks.stacks][:20], do="give --stacks FILE, the one that was measured",
    )  # fmt: skip


def _no_stacks(where: str) -> InputError:
    return InputError(
        "no locks are at hand", where=where, found=f"the session has no {model.FILE_NAME}", do="give --stacks FILE"
    )


def _write(path: Path, text: str) -> Path:
    try:
        return files.write_text(path, text)
    except OSError as error:
        raise ConfigError("cannot write the file", where=path, found=error.strerror) from error
