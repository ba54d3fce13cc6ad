"""The errors that a user may see, each with what to do about it.

The library raises these; only `workbench.cli` ends the process, with the error's exit code:
0 good, 1 measured but invalid or past a threshold, 2 wrong use, config or input, 3 a tool, kernel or environment died.
"""

from __future__ import annotations

from collections.abc import Iterable


class WorkbenchError(Exception):
    """Something went wrong that the message explains: what, where, found, allowed, what to do.

    Parameters
    ----------
    what
        What is wrong, as a short sentence without a full stop.
    where
        File, row, field path or parameter that is meant.
    found
        The value that was found.
    allowed
        What would have been right: a range, a list of names, a format.
    do
        What the reader can do now, as a command where there is one.

    Examples
    --------
    >>> print(InputError("unknown parameter", where="-p top", found="top", allowed=["event_log", "top_operators"]))
    unknown parameter
      where: -p top
      found: top
      allowed: event_log, top_operators
    """

    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        found: object = None,
        allowed: object = None,
        do: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
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
        """What a notebook shows in place of a traceback: the words alone; a user's mistake has no use for ours."""
        from workbench.lines import harmless

        return [harmless(f"Error: {self}")]

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders; the default would lose the keyword facts.
        return (_rebuild, (type(self), self.what, self.facts))


def exit_code_of(name: str) -> int:
    """The exit code of an error that is known by its class's name alone, as in a notebook's cell; 3 for a foreign one.

    Examples
    --------
    >>> exit_code_of("InputError"), exit_code_of("BrokenInvariantError"), exit_code_of("ZeroDivisionError")
    (2, 3, 3)
    """
    known = globals().get(name)
    return known.exit_code if isinstance(known, type) and issubclass(known, WorkbenchError) else 3


def _rebuild(kind: type[WorkbenchError], what: str, facts: dict[str, object]) -> WorkbenchError:
    error = kind(what)
    error.facts = facts
    return error


class InputError(WorkbenchError):
    """What was given to read cannot be used: a file, a log, a table, a value."""

    exit_code = 2


class BrokenInvariantError(InputError):
    """Two ways through a result disagree: nobody's input is at fault, and the result is none."""

    exit_code = 3


class ConfigError(WorkbenchError):
    """What was asked for cannot be done: an option, a parameter, a setting."""

    exit_code = 2


class InvalidResultError(WorkbenchError):
    """It was measured, but the result is invalid or past a threshold."""

    exit_code = 1


class MissingToolError(WorkbenchError):
    """Something that this machine lacks is needed; `do` names the command that mends it."""

    exit_code = 3


class RunFailedError(WorkbenchError):
    """A tool, a kernel or a notebook cell died while it was run."""

    exit_code = 3
