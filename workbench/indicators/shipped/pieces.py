"""What the shipped indicators share: where scripts lie, which package a framework comes in, parameters of the clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.indicators.contract import Indicator, Value, parameter, result

SCRIPTS = Path(__file__).parent / "scripts"
ALTERNATIVES = {
    "tensorflow": "tensorflow|tensorflow-cpu|tensorflow-gpu|tensorflow-intel|tensorflow-cpu-aws|intel-tensorflow",
}
"""Frameworks that come in packages of several names."""


def helpers(*names: str) -> dict[str, Path]:
    """The files that lie beside a script: `_measure.py`, and those of these names."""
    return {f"{name}.py": SCRIPTS / f"{name}.py" for name in ("_measure", *names)}


class Shipped(Indicator):
    """An indicator with a parameter `framework`: a stack must have it. `elapsed_ms` is what is compared."""

    elapsed_ms: float = result(unit="ms", better="lower", ge=0, about="How long it took.")

    @classmethod
    def needs(cls, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """The framework's package, by any of its names, and what `requires` has beside; Python itself is no package."""
        framework = str(parameters["framework"])
        own = () if framework == "python" else (ALTERNATIVES.get(framework, framework),)
        return (*own, *super().needs(parameters))


class Timed(Shipped):
    """The work is repeated in one process; `elapsed_ms` is the median. Stacks are compared over processes, not these.

    The spread between processes is several times the one within: more repeats do not make a result surer, more runs
    do.
    """

    seed: int = parameter(0, ge=0, le=2**31, about="Start of the random input; the same input in every framework.")
    warmup: int = parameter(3, ge=0, le=1_000, about="Calls before the clock starts.")
    reps: int = parameter(20, ge=1, le=1_000, about="Calls on the clock.")
