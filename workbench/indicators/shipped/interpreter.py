"""Indicators of what surrounds the work: importing, the first value, loops in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from workbench.indicators.contract import check, parameter, result
from workbench.indicators.shipped.pieces import SCRIPTS, Shipped, Timed, helpers


class ImportTime(Shipped):
    """How long does the import of a library take, in a fresh process?

    Modules of the standard library that the script itself uses (such as json) are there already. The files come from
    memory after the first run. Does not show: the interpreter's start, or a first import from a cold disk.
    """

    script: ClassVar[Path | str] = SCRIPTS / "import_time.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers()
    framework: Literal[
        "numpy", "pandas", "polars", "torch", "tensorflow", "jax", "scipy", "scikit-learn", "pyarrow"
    ] = parameter("numpy", about="The library that is imported.")
    modules: int = result(unit="modules", about="Modules that came with it.")


class Hello(Shipped):
    """How long until a library has made and shown its first value, once it is imported?

    Once in a fresh process, without warm-up: what a library puts off until it is used, it does here (jax and
    tensorflow start their devices). Does not show: the import itself.
    """

    script: ClassVar[Path | str] = SCRIPTS / "hello.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers()
    framework: Literal["numpy", "pandas", "polars", "torch", "tensorflow", "jax"] = parameter(
        "numpy", about="The library that says hello."
    )
    elapsed_ms: float = result(
        unit="ms", better="lower", tolerance=0.05, ge=0, about="From the first call until the value was shown."
    )
    wrong: int = check(equals=0, about="1 if the value that was shown is not the right one.")


class ScalarLoop(Timed):
    """How long does a Python loop take that reads numbers one by one and adds 1 to each?

    `framework` is who holds the numbers: `python` is a list, so that the interpreter alone is measured. Does not show:
    anything of how quick a library is at what it is made for.
    """

    script: ClassVar[Path | str] = SCRIPTS / "scalar_loop.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers()
    framework: Literal["numpy", "python", "torch", "pandas", "polars"] = parameter(
        "numpy", about="Who holds the numbers."
    )
    n: int = parameter(5_000, ge=1, le=10_000_000, about="How many numbers.")
    input_digest: str = check(about="Stands for the input.")
    wrong: int = check(equals=0, about="Numbers that came out wrong.")
