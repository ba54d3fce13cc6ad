"""Stacks from a few words: one set of requirements each, solved on the spot."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from packaging.utils import canonicalize_name

from workbench.errors import ConfigError
from workbench.indicators.stacks import making, naming, request, space, tool
from workbench.indicators.stacks.model import Stack, StackSet

# Spaces, or a comma before the next name: the one in numpy>=1.24,<2 belongs to it, as does one in brackets.
_SEPARATORS = re.compile(r"\s+|,(?=[A-Za-z])(?![^\[]*\])")


def solved(
    texts: Sequence[str], max_download_bytes: int, progress: Callable[[int, int], None] | None = None
) -> StackSet:
    """A stack for each text of requirements (`numpy==2.2.6 pandas==2.2.3`), named by what tells them apart.

    Raises
    ------
    ConfigError
        A text has no requirement, no solution, or the same lock as another.
    """
    found: list[Stack] = []
    names: dict[str, None] = {}
    for number, text in enumerate(texts):
        requirements = tuple(_SEPARATORS.split(text.strip()))
        answer = making.make(request.checked(requirements=requirements, max_download_bytes=max_download_bytes))
        if answer.rejected or not answer.stacks:
            told = answer.rejected[0].reason.splitlines()[0] if answer.rejected else "no stack"
            raise ConfigError("a stack without a solution", where=f"--stack {text!r}"[:200], found=told[:300])
        found += answer.stacks
        names |= dict.fromkeys(canonicalize_name(space.requirement(one, "--stack").name) for one in requirements)
        if progress is not None:
            progress(number + 1, len(texts))
    return gathered(naming.named(_different(found, texts), list(names)), texts)


def gathered(stacks: Sequence[Stack], requirements: Sequence[str]) -> StackSet:
    """Stacks as one set.

    Raises
    ------
    ConfigError
        Two have the same lock, or the same name.
    """
    names = [stack.name for stack in stacks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError("two stacks of one name", found=twice, do="give them different identifiers")
    return StackSet(
        requirements=tuple(text[:1000] for text in requirements),
        free=(),
        decision="grid",
        python=stacks[0].python,
        platform=stacks[0].platform,
        uv_version=tool.version(),
        stacks=tuple(_different(list(stacks), requirements)),
    )


def _different(stacks: list[Stack], texts: Sequence[str]) -> list[Stack]:
    keys = [stack.key for stack in stacks]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise ConfigError(
                "two stacks are the same",
                found=[texts[keys.index(key)][:100], texts[number][:100]],
                do="leave one out: the baseline is measured twice anyway, as the control",
            )
    return stacks
