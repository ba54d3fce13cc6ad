"""How fast a submission by the old tool's flags goes, and what ends it; kept, so that it is gone on with so."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import runs
from workbench.errors import ConfigError, InputError
from workbench.scaletest import facts
from workbench.scaletest.arrivals import Burst
from workbench.scaletest.driving import Bursts, Limits
from workbench.scaletest.planning import Plan
from workbench.scaletest.safety import TargetFacts
from workbench.scaletest.upstream.flags import Flags

_KEY = "pace"
_ANEW = "submit anew into another folder"


@dataclass(frozen=True)
class Pace:
    """What a scenario has no place for.

    Attributes
    ----------
    delay
        Seconds from a burst's end to the next in a closed loop.
    max_rate
        Workloads a second at most.
    num_processes
        Workloads of a burst.
    """

    delay: float
    max_rate: float
    num_processes: int

    def config(self) -> dict[str, Any]:
        """For run.json."""
        return {_KEY: dataclasses.asdict(self)}

    def limits(self, plan: Plan) -> Limits:
        """The plan's, at this rate; nobody watches the pods, so none is held against theirs."""
        given = plan.scenario.limits
        return Limits(
            objects=given.objects,
            rate_per_s=self.max_rate,
            in_flight=given.in_flight,
            wall_clock_s=given.wall_clock_s,
        )

    def bursts(self, plan: Plan) -> Bursts:
        """The closed loop."""
        arrival = plan.scenario.arrival
        return Bursts(arrival.size if isinstance(arrival, Burst) else self.num_processes, self.delay)


def of_flags(flags: Flags) -> Pace:
    """The pace that the flags ask for."""
    return Pace(flags.delay, flags.max_rate, flags.num_processes)


def kept(folder: Path) -> Pace:
    """The pace that the submission in this folder was begun with.

    Raises
    ------
    InputError
        Its record does not say.
    """
    try:
        return Pace(**runs.load(folder).record["config"][_KEY])
    except (KeyError, TypeError) as error:
        raise InputError(
            "not a submission that can be gone on with", where=folder, found=str(error)[:120], do=_ANEW
        ) from None


def refuse_other(folder: Path, found: TargetFacts) -> None:
    """Go on only on the cluster that the submission in this folder began on.

    What was accepted there would not be missed here, and the rest would be made here.

    Raises
    ------
    ConfigError
        It is another.
    """
    test = facts.read(folder)
    if found.fingerprint != test.fingerprint:
        raise ConfigError(
            "this is another cluster than the one that the submission began on",
            where=f"context {found.context}",
            found=found.fingerprint,
            allowed=f"{test.fingerprint} (context {test.context})",
            do=f"name that one, or {_ANEW}",
        )
