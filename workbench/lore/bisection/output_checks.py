"""Checks of an operator's output: a user's function, a SQL condition of wrong rows, and ready invariants."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError
from workbench.lore.replays.output_tables import collect_table
from workbench.lore.replays.row_fingerprints import parse_expression, quote_name

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame

UserCheck = Callable[["pl.DataFrame"], Any]


@dataclass(frozen=True)
class OutputCheck:
    """What is wrong with an output.

    `finds_fault`: Called with the output (columns named as in the query) and the number of rows of the first input.
    """

    looked_for: str
    finds_fault: Callable[[DataFrame, int], bool]


def load_user_check(place: str, *, where: str = "--check") -> UserCheck:
    """The function of `module:function` or `FILE.py:function`."""
    module_name, colon, name = place.rpartition(":")
    if not colon or not name.isidentifier():
        raise ConfigError("not a function", where=where, found=place[:200], allowed="module:function, FILE.py:function")
    try:
        if module_name.endswith(".py"):
            module = _load_file(Path(module_name))
        else:
            sys.path.insert(0, "")
            module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            "the check cannot be loaded",
            where=where,
            found=f"{type(error).__name__}: {error}"[:300],
            do="correct it: python -c 'import MODULE' shows the error",
        ) from error
    check = getattr(module, name, None)
    if not callable(check):
        names = [member for member in vars(module) if not member.startswith("_") and callable(getattr(module, member))]
        raise ConfigError("no such function", where=where, found=name, allowed=names[:20] or "none")
    return check  # type: ignore[no-any-return]


def _load_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_fault(answer: Any) -> bool:
    """Does the answer of a user's check say that the output is wrong: False, or failing rows?

    >>> is_fault(True), is_fault(False), is_fault([]), is_fault([{"amount": -1}])
    (False, True, False, True)
    """
    if hasattr(answer, "item") and not hasattr(answer, "columns"):
        answer = answer.item()
    if isinstance(answer, bool):
        return not answer
    try:
        return len(answer) > 0
    except TypeError:
        raise ConfigError(
            "the check gave neither true or false nor rows",
            where="--check",
            found=repr(answer)[:100],
            allowed="True (the output is right), False, or the failing rows",
        ) from None


def check_by_function(check: UserCheck, name: str) -> OutputCheck:
    """The output as a polars table: the function returns False or the failing rows when it is wrong."""

    def finds_fault(frame: DataFrame, _: int) -> bool:
        try:
            return is_fault(check(collect_table(frame)))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                "the check failed",
                where=f"--check {name}",
                found=f"{type(error).__name__}: {error}"[:500],
                do="it gets a polars table of the output, also one without rows",
            ) from error

    return OutputCheck(f"an output that {name} calls wrong", finds_fault)


def check_by_sql(condition: str) -> OutputCheck:
    """Wrong rows are those that meet a SQL condition over the columns of the output."""
    return OutputCheck(
        f"a row with {condition}", lambda frame, _: not frame.filter(parse_expression(condition)).isEmpty()
    )


def check_no_nulls(columns: Sequence[str]) -> OutputCheck:
    """No null in these columns."""
    condition = " OR ".join(f"{quote_name(name)} IS NULL" for name in columns)
    return OutputCheck(f"a null in {', '.join(columns)}", lambda frame, _: not frame.filter(condition).isEmpty())


def check_unique(columns: Sequence[str]) -> OutputCheck:
    """No two rows with the same values in these columns."""

    def finds_fault(frame: DataFrame, _: int) -> bool:
        return not frame.groupBy(*map(quote_name, columns)).count().filter("count > 1").isEmpty()

    return OutputCheck(f"two rows with the same {', '.join(columns)}", finds_fault)


def check_row_count(rule: str) -> OutputCheck:
    """As many rows as the first input (`same`), or not more (`at-most`)."""

    def finds_fault(frame: DataFrame, n_rows: int) -> bool:
        n_found = frame.count()
        return bool(n_found > n_rows if rule == "at-most" else n_found != n_rows)

    wrong = "more rows than" if rule == "at-most" else "another number of rows than"
    return OutputCheck(f"{wrong} input-0", finds_fault)
