from typing import ClassVar

from workbench.indicators.contract import Case, Indicator, check, parameter, result


class Doubling(Indicator):
    """Double many numbers."""

    requires: ClassVar[tuple[str, ...]] = ("numpy",)  # stacks without it are left out
    n: int = parameter(100_000, ge=1)  # the script reads PI_N
    elapsed_ms: float = result(unit="ms", better="lower", tolerance=0.02)
    wrong: int = check(equals=0)
    script: ClassVar[str] = "..."  # or a Path


assert Case.of(Doubling, {"n": 5}).label == "Doubling[n=5]"
