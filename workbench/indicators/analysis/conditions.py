"""Conditions of runs besides the stack: byte code, locale, hash seed, threads. What is equal between arms?"""

from __future__ import annotations

from workbench.indicators.store.archive import Arm, Session

_BY_VARIABLE = {"LANG": "locale", "LC_ALL": "locale", "LC_CTYPE": "locale", "PYTHONHASHSEED": "hash seed"}


def list_unequal_conditions(session: Session, arm: Arm) -> list[str]:
    """Conditions of an arm that differ from the baseline's, in words; empty where all that is known is equal."""
    base, planned = session.get_arm(session.baseline).conditions, _list_planned_conditions(session, arm)
    return [
        f"{name}: {arm.conditions[name]} (baseline: {base[name]})"
        for name in arm.conditions
        if name in base and name not in planned and arm.conditions[name] != base[name]
    ]


_BY_VARIABLE |= {"PYTHONOPTIMIZE": "interpreter", "PYTHONDEVMODE": "interpreter", "PYTHON_GIL": "interpreter"}


def _list_planned_conditions(session: Session, arm: Arm) -> set[str]:
    """Conditions that differ because the session's matrix varies them: what it is measured for."""
    base = session.get_arm(session.baseline).factors
    varied = {name for name in base.keys() | arm.factors.keys() if base.get(name) != arm.factors.get(name)}
    return {_BY_VARIABLE[name] for name in varied if name in _BY_VARIABLE} | (
        {"threads", "cores"} if "threads" in varied else set()
    )
