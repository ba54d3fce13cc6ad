"""Completion by the shell: names of notebooks, of their parameters, and of samples.

Imports no library of data: the shell waits for it at each key.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from workbench.core.samples import PREFIX, list_samples, name_sample

COMPLETION_VARIABLE = "_WORKBENCH_COMPLETE"
# Bash takes these for words of their own, and replaces only what stands behind the last.
_BREAKS = ("=", ":")


def complete_sample(incomplete: str) -> list[tuple[str, str] | str]:
    """Names of samples, each with what it holds, where a value begins as one: `sample:…`, `NAME=sample:…`.

    >>> complete_sample("log=sample:tpch_sf0.1")
    [('log=sample:tpch_sf0.1', 'Event log: 11 queries of TPC-H at scale 0.1, three passes each.')]
    """
    key, equals, value = incomplete.rpartition("=")
    if not value or not (PREFIX.startswith(value) or value.startswith(PREFIX)):
        return []
    names = {f"{key}{equals}{PREFIX}{name_sample(path)}": holds for path, holds in list_samples().items()}
    return [(name, holds) for name, holds in names.items() if name.startswith(incomplete)]


def complete_notebook(incomplete: str) -> list[str]:
    """Areas and names of the notebooks that `workbench run` takes."""
    from workbench.core.errors import ConfigError
    from workbench.execution import discovery

    try:
        paths = discovery.list_numbered_notebooks(discovery.find_notebook_folder())
    except ConfigError:
        return []
    names = [*map(discovery.area_from_path, paths), *(path.stem for path in paths), "all"]
    return [name for name in names if name.startswith(incomplete)]


def complete_parameter(ctx: Any, incomplete: str) -> list[tuple[str, str] | str]:
    """Parameters of the notebooks that are named before, each with its comment; values that are samples."""
    if "=" in incomplete:
        return complete_sample(incomplete)
    from workbench.core.errors import WorkbenchError
    from workbench.execution import discovery, parameters

    try:
        # An option without its value ends the reading of the arguments.
        names = ctx.params.get("notebooks") or [word for word in ctx.args if not word.startswith("-")]
        paths = discovery.resolve_notebooks(names)
        declared = [
            item for path in paths for item in parameters.read_parameters(json.loads(path.read_text(encoding="utf-8")))
        ]
    except (WorkbenchError, OSError, ValueError):
        return []
    return [(f"{item.name}=", item.comment) for item in declared if item.name.startswith(incomplete)]


def complete_samples_of(parameter: Any) -> None:
    """Let a parameter of a command complete names of samples, where it completes nothing of its own."""
    from typer.core import _typer_param_setup_autocompletion_compat as set_up

    if parameter._custom_shell_complete is None:
        set_up(parameter, autocompletion=lambda _context, _words, incomplete: complete_sample(incomplete))


def run_completion(run: Callable[[], None]) -> None:
    """Run the command line for a completion; for bash, words are put together and only their last parts are told."""
    text, at = os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_CWORD", "")
    # Typer's script has one word a line.
    separator = "\n" if "\n" in text else " "
    words = text.split(separator)
    if os.environ.get(COMPLETION_VARIABLE) != "complete_bash" or not at.isdigit() or not {*_BREAKS} & {*words}:
        run()
        return
    joined, present = _join_words(words, int(at))
    os.environ.update(COMP_WORDS=separator.join(joined), COMP_CWORD=str(present))
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told):
            run()
    finally:
        incomplete = joined[present] if present < len(joined) else ""
        before = max(map(incomplete.rfind, _BREAKS)) + 1
        sys.stdout.writelines(line[before:] for line in told.getvalue().splitlines(keepends=True))


def _join_words(words: list[str], at: int) -> tuple[list[str], int]:
    """The words as they were typed, and which of them is being typed.

    >>> _join_words(["workbench", "run", "profile", "-p", "event_log", "=", "sample", ":", "tp"], 8)
    (['workbench', 'run', 'profile', '-p', 'event_log=sample:tp'], 4)
    """
    joined: list[str] = []
    present = 0
    for number, word in enumerate(words):
        is_part = joined and (word in _BREAKS or re.search("[=:]$", joined[-1]))
        if is_part:
            joined[-1] += word
        else:
            joined.append(word)
        if number == at:
            present = len(joined) - 1
    return joined, present if at < len(words) else len(joined)
