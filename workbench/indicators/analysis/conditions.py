"""Conditions of runs besides the stack: byte code, locale, hash seed, threads. What is equal between arms?"""

from __future__ import annotations

from workbench.indicators.store.archive import Arm, Session


def list_unequal_conditions(session: Session, arm: Arm) -> list[str]:
    """Conditions of an arm that differ from the baseline's, in words; empty where all that is known is equal."""
    base = session.get_arm(session.baseline).conditions
    return [
        f"{name}: {arm.conditions[name]} (baseline: {base[name]})"
        for name in arm.conditions
        if name in base and arm.conditions[name] != base[name]
    ]
