"""Tiny indicators and sessions for tests: runs of a few milliseconds, real processes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from workbench.indicators.contract.indicator import Case, Indicator, check, parameter, result
from workbench.indicators.measurement import session_plan, stack_variants
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.store.archive import Session, read_results, read_session

SCRIPT = """
import json, os
n = int(os.environ["PI_N"])
print(json.dumps({"name": "Tiny", "framework": "python", "@parameters": {"n": n},
                  "@result": {"elapsed_ms": 1.5 * n}, "@checks": {"wrong": 0}}))
"""


class Tiny(Indicator):
    """Says what it was told."""

    script: ClassVar[Path | str] = SCRIPT
    n: int = parameter(2, ge=1)
    elapsed_ms: float = result(unit="ms", better="lower")
    wrong: int = check(equals=0)


def scripted(text: str) -> type[Indicator]:
    """The same indicator with another script."""

    return type("Tiny", (Tiny,), {"__doc__": "Another one.", "__module__": __name__, "script": text})


def printing(document: Any) -> str:
    """A script that prints this and nothing else."""
    text = document if isinstance(document, str) else json.dumps(document)
    return f"print({text!r})\n"


def valid(**changes: Any) -> dict[str, Any]:
    """A document of Tiny with its default parameter, with changes."""
    parts = {"@parameters": {"n": 2}, "@result": {"elapsed_ms": 3.0}, "@checks": {"wrong": 0}}
    return {"name": "Tiny", "framework": "python", **parts, **changes}


@functools.cache
def two_sides() -> tuple[Variant, ...]:
    """This interpreter under two names, and as the control."""
    return tuple(stack_variants.build_python_variants({"one": sys.executable, "two": sys.executable}))


def session(cases: Sequence[Case] = (), found: Sequence[Variant] | None = None, **settings: Any) -> Session:
    """A planned session of these cases."""
    config = session_config(**{"rounds": (2,), "seed": 7, "timeout_s": 20.0, **settings})
    return session_plan.build_session_plan(
        "a-session", config, found or two_sides(), cases or [Case.from_parameters(Tiny)]
    )


def kept(folder: Path) -> list[tuple[int, str, str, str]]:
    """What is on disk: position, case, arm and status of each run, in the order of the plan."""
    there = read_session(folder)
    found = [one.workbench for _, _, one in read_results(folder, there)]
    return sorted((one.position, one.case, one.arm, one.status) for one in found)
