"""Errors for users: what is wrong, where, what was found, what is allowed, what to do.

Only `workbench.cli.app` ends the process, with the exit code of the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of commands."""

    GOOD = 0
    INVALID = 1
    """Measured, but invalid or past a threshold."""
    WRONG_USE = 2
    """Invalid usage, configuration or input."""
    FAILED = 3
    """A tool, a kernel or the environment failed."""
    CANCELLED = 130
    """Ctrl-C; measurements so far are kept."""


class WorkbenchError(Exception):
    """Base of all errors for users.

    >>> print(InputError("unknown parameter", where="-p top", found="top", allowed=["event_log", "top_operators"]))
    unknown parameter
      where: -p top
      found: top
      allowed: event_log, top_operators
    """

    exit_code = ExitCode.FAILED

    def __init__(
        self,
        message: str,
        *,
        where: object = None,
        found: object = None,
        allowed: object = None,
        do: str | None = None,
    ) -> None:
        super().__init__(message)
        self.what = message
        self.facts = {"where": where, "found": found, "allowed": allowed, "do": do}

    def __str__(self) -> str:
        lines = [self.what]
        for label, value in self.facts.items():
            if value is None:
                continue
            if isinstance(value, Iterable) and not isinstance(value, str | bytes):
                value = ", ".join(str(item) for item in value)
            lines.append(f"  {label}: {value}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        """Shown in a notebook in place of a traceback: the message alone."""
        from workbench.core.formats import replace_controls

        return [replace_controls(f"Error: {self}")]

    def __reduce__(self) -> tuple[object, ...]:
        # Pickled between processes; the default would lose the keyword arguments.
        return (_rebuild_error, (type(self), self.what, self.facts))


def exit_code_for_error(name: str) -> ExitCode:
    """Exit code of an error by the name of its class, as in a notebook's cell; 3 for any other class.

    >>> [int(exit_code_for_error(name)) for name in ("InputError", "BrokenInvariantError", "ZeroDivisionError")]
    [2, 3, 3]
    """
    error_type = globals().get(name)
    return (
        error_type.exit_code
        if isinstance(error_type, type) and issubclass(error_type, WorkbenchError)
        else ExitCode.FAILED
    )


def _rebuild_error(kind: type[WorkbenchError], message: str, facts: dict[str, object]) -> WorkbenchError:
    error = kind(message)
    error.facts = facts
    return error


class InputError(WorkbenchError):
    """An input cannot be used: a file, a log, a table, a value."""

    exit_code = ExitCode.WRONG_USE


class BrokenInvariantError(WorkbenchError):
    """Two ways to compute a result disagree: a bug in the workbench, and no result."""


class ConfigError(WorkbenchError):
    """An option, a parameter or a setting cannot be used."""

    exit_code = ExitCode.WRONG_USE


class InvalidResultError(WorkbenchError):
    """The result was measured, but is invalid or past a threshold."""

    exit_code = ExitCode.INVALID


class MissingToolError(WorkbenchError):
    """A tool that this machine lacks; `do` is the command that installs or fixes it."""


class RunFailedError(WorkbenchError):
    """A tool, a kernel or a notebook cell failed while it ran."""


@contextmanager
def refuse_os_errors(
    message: str, where: object = None, *, do: str | None = None, error_type: type[WorkbenchError] = InputError
) -> Iterator[None]:
    """Within, what the system refuses is an error for users, with the system's reason.

    >>> with refuse_os_errors("cannot read the plan", "no/such.yaml"):
    ...     open("no/such.yaml")
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: cannot read the plan
      where: no/such.yaml
      found: No such file or directory
    """
    try:
        yield
    except OSError as error:
        raise error_type(message, where=where, found=error.strerror or str(error), do=do) from error
