"""A check of `workbench doctor`: what was looked for, what was found, and which ability needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ability = Literal["base", "live", "spark", "cluster", "development"]
Level = Literal["good", "advice", "missing"]


@dataclass(frozen=True)
class Check:
    """One check.

    `level`: good; advice: works with limits; missing: the ability does not work.
    `mend`: The command or step that fixes it; null for none.
    """

    what: str
    found: str
    needed_for: Ability
    level: Level = "good"
    mend: str | None = None
