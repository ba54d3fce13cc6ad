"""What was checked before a test, in words: good, doubtful, or a reason not to begin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from workbench.errors import ConfigError

Level = Literal["ok", "warning", "refused"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    level
        `refused`: the test must not begin.
    check
        What was looked at, in a word.
    do
        What mends it.
    """

    level: Level
    check: str
    text: str
    do: str | None = None

    def line(self) -> str:
        """For a terminal."""
        return f"{self.level:8} {self.check}: {self.text}" + (f"\n         do: {self.do}" if self.do else "")


def refuse(findings: Iterable[Finding]) -> None:
    """Go on unless something is refused; all of it is told at once.

    Raises
    ------
    ConfigError
        The reasons.

    Examples
    --------
    >>> refuse([Finding("ok", "fence", "pods can only go to 40 simulated node(s)")])
    """
    bad = [one for one in findings if one.level == "refused"]
    if not bad:
        return
    if len(bad) == 1:
        raise ConfigError("the test was not begun", where=bad[0].check, found=bad[0].text, do=bad[0].do)
    told = "".join(f"\n    {one.check}: {one.text}" + (f"\n      do: {one.do}" if one.do else "") for one in bad)
    raise ConfigError(f"the test was not begun, for {len(bad)} reasons", found=told)
