"""Names for stacks: the shortest that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.indicators.stacks.model import Stack

MOST_EXTRA = 3
KEY_DIGITS = 6


def varying(stacks: Sequence[Stack]) -> list[str]:
    """The packages that not all stacks have in the same version, sorted."""
    names = sorted({name for stack in stacks for name in stack.versions})
    return [name for name in names if len({stack.versions.get(name) for stack in stacks}) > 1]


def named(stacks: Sequence[Stack], first: Sequence[str]) -> list[Stack]:
    """The same stacks with names such as "numpy 2.2.6, pandas 2.2.3".

    Parameters
    ----------
    stacks
        Stacks of one set, with different keys.
    first
        Packages that the user asked about: a name has those of them that vary, and others only if it must.

    Returns
    -------
    list
        In the same order; where packages do not tell stacks apart, their names end in digits of the key.
    """
    told = [name for name in _telling(stacks, first) if name]
    names = [", ".join(labelled(stack, name) for name in told) for stack in stacks]
    return [
        stack.model_copy(update={"name": name if names.count(name) == 1 else f"{name} ({stack.key[:KEY_DIGITS]})"})
        for stack, name in zip(stacks, names, strict=True)
    ]


def labelled(stack: Stack, name: str) -> str:
    """A package with its version, or that the stack has none of it."""
    version = stack.versions.get(name)
    return f"no {name}" if version is None else f"{name} {version}"


def _telling(stacks: Sequence[Stack], first: Sequence[str]) -> list[str]:
    """The packages that a name has."""
    differ = varying(stacks)
    chosen = [name for name in first if name in differ]
    others = [name for name in differ if name not in chosen]
    while len(chosen) < len(first) + MOST_EXTRA and _told_apart(stacks, chosen) < len(stacks) and others:
        # The one that tells most apart; of equals the first by name.
        best = max(others, key=lambda name: (_told_apart(stacks, [*chosen, name]), -others.index(name)))
        chosen.append(best)
        others.remove(best)
    # Of a single stack, or of equal versions, nothing varies: what was asked about names it.
    present = [name for name in first if any(name in stack.versions for stack in stacks)]
    return chosen or present[:2] or [stacks[0].packages[0].name] if stacks else []


def _told_apart(stacks: Sequence[Stack], names: Sequence[str]) -> int:
    return len({tuple(stack.versions.get(name) for name in names) for stack in stacks})
