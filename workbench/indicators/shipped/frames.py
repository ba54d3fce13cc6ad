"""Indicators of libraries for tables: group-by, join, reading files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from workbench.indicators.contract import Value, check, parameter
from workbench.indicators.shipped.pieces import SCRIPTS, Timed, helpers

FrameFramework = Literal["pandas", "polars"]


class OnTables(Timed):
    """What all of them have: the input's digest, the answer's digest, and a comparison with plain Python's answer."""

    framework: FrameFramework = parameter("pandas", about="Who computes.")
    input_digest: str = check(about="Stands for the input.")
    wrong: int = check(equals=0, about="Rows, or values, that differ from the right answer.")
    answer_digest: str = check(about="Stands for the answer, its rows in one order.")


class GroupBy(OnTables):
    """How long do sum, maximum and count by key take?

    Keys are whole numbers; values are short fractions, whose sums are exact in any order: the right answer is one
    answer. Does not show: several keys, texts as keys, nulls.
    """

    script: ClassVar[Path | str] = SCRIPTS / "groupby.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_frames")
    n: int = parameter(100_000, ge=1, le=100_000_000, about="Rows.")
    groups: int = parameter(1_000, ge=1, le=100_000_000, about="Keys, about.")


class Join(OnTables):
    """How long does an inner join on a whole number take?

    About half of the rows of the left table have a partner, exactly one. Does not show: several partners, other
    kinds of join, texts as keys, nulls.
    """

    script: ClassVar[Path | str] = SCRIPTS / "join.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_frames")
    n: int = parameter(50_000, ge=1, le=100_000_000, about="Rows of the left table.")
    partners: int = parameter(10_000, ge=1, le=100_000_000, about="Rows of the right table.")


class ReadCsv(OnTables):
    """How long does it take to read a CSV file of whole numbers, fractions and words?

    The file is in memory already. Does not show: the disk, quotes, dates, nulls, fractions of 16 digits and more.
    """

    script: ClassVar[Path | str] = SCRIPTS / "read_csv.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_frames", "_reading")
    rows: int = parameter(20_000, ge=1, le=10_000_000, about="Rows.")


class ReadParquet(OnTables):
    """How long does it take to read a Parquet file of whole numbers, fractions and words?

    The same bytes for every stack: one row group, plain pages. The file is in memory already. pandas reads with
    pyarrow. Does not show: the disk, dictionaries, nulls, skipping by statistics, many row groups.
    """

    script: ClassVar[Path | str] = SCRIPTS / "read_parquet.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_frames", "_reading", "_parquet")
    rows: int = parameter(50_000, ge=1, le=10_000_000, about="Rows.")
    compression: Literal["none", "gzip"] = parameter("none", about="How pages are compressed.")

    @classmethod
    def needs(cls, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """The framework, and for pandas the library that reads Parquet for it."""
        own = super().needs(parameters)
        return (*own, "pyarrow") if parameters["framework"] == "pandas" else own
