"""Which side a log or profile belongs to, checked: the original took anything and divided by it."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors import InputError
from workbench.speedup.seed.applications import SeedApplication


def check_side(applications: Sequence[SeedApplication], *, accelerated: bool) -> None:
    """Refuse an accelerated application on the CPU side, and a plain one on the accelerated side.

    Raises
    ------
    InputError
        Naming the application that stands on the wrong side.
    """
    for application in applications:
        if application.accelerated == accelerated:
            continue
        found = "an accelerated run" if application.accelerated else "a run without an accelerator plugin"
        raise InputError(
            f"{found} on the {'accelerated' if accelerated else 'CPU'} side",
            where=application.where,
            found=f"application {application.name!r}",
            do="check that the two sides are not swapped",
        )
