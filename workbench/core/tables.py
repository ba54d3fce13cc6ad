"""Declared tables: columns with dtype, unit and meaning, checked on write and on read.

Each area declares its tables in its own `tables`. Rows are tidy: identity columns first, values in the unit of the
column's name, missing values null and never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import InputError
from workbench.core.files import replace_atomically
from workbench.core.frames import convert_frame

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

Better = Literal["lower", "higher", ""]
Dtype = Literal["int", "float", "str", "bool", "list[int]", "list[float]", "list[str]", "list[bool]"]


@dataclass(frozen=True)
class Column:
    """One column: the unit is part of the name; `unit` is its text for tables and axes ("ms", "bytes", "" for none).

    `ends` names the columns with the ends of this column's interval; needed only where the names do not say so
    (`x, x_low, x_high`, or `low, high` directly after it). `added`: older runs lack the column; it is null there.
    `better`: the good direction, "" where there is none.
    """

    name: str
    dtype: Dtype
    meaning: str
    unit: str = ""
    nullable: bool = False
    added: bool = False
    ends: tuple[str, str] | None = None
    better: Better = ""


@dataclass(frozen=True)
class Coded:
    """A column of few distinct values: row i has `values[codes[i]]`."""

    codes: npt.NDArray[np.integer]
    values: Sequence[Any]


@dataclass(frozen=True)
class Table:
    """A declared table: `name` is the file's stem, `key` the columns that identify a row.

    Examples
    --------
    >>> runs = Table("runs", "One row per query run.", ("query",), (
    ...     Column("query", "str", "Name of the query."),
    ...     Column("duration_s", "float", "Wall time of the run.", unit="s", nullable=True)))
    >>> runs.frame([{"query": "q1", "duration_s": None}]).schema["duration_s"]
    Float64
    >>> runs.frame([{"query": "q1", "duration_s": 1.5}, {"query": "q1", "duration_s": 2.5}])
    Traceback (most recent call last):
    ...
    workbench.core.errors.InputError: key is not unique
      where: table runs, key (query)
      found: q1 twice or more
    """

    name: str
    meaning: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The declaration of one column."""
        return next(column for column in self.columns if column.name == name)

    def schema(self) -> dict[str, Any]:
        """Column name to polars dtype, in the declared order."""
        import polars as pl

        dtypes: dict[Dtype, Any] = {
            "int": pl.Int64(),
            "float": pl.Float64(),
            "str": pl.String(),
            "bool": pl.Boolean(),
            "list[int]": pl.List(pl.Int64()),
            "list[float]": pl.List(pl.Float64()),
            "list[str]": pl.List(pl.String()),
            "list[bool]": pl.List(pl.Boolean()),
        }
        return {column.name: dtypes[column.dtype] for column in self.columns}

    def frame(self, rows: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> pl.DataFrame:
        """Build a checked data frame from rows (mappings) or from columns (as `build_frame` takes them)."""
        import polars as pl

        if not isinstance(rows, Mapping):
            return self.check(pl.DataFrame(list(rows), schema=self.schema(), orient="row"))
        return self.check(self.build_frame(rows))

    def build_frame(self, columns: Mapping[str, Any]) -> pl.DataFrame:
        """Build a frame, not checked yet, from lists, numpy's arrays (null where masked) or `Coded` columns."""
        import polars as pl

        return pl.DataFrame([_build_series(name, columns[name], dtype) for name, dtype in self.schema().items()])

    def _fit_types(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give columns the declared type where no value changes.

        A frame of pandas has floats for an int column with missing values, and categories for text.
        """
        import polars as pl

        castable = (pl.Categorical, pl.Enum, pl.Null, pl.List(pl.Null))
        schema = self.schema()
        for name in [name for name, dtype in schema.items() if frame.schema[name] != dtype]:
            column, dtype = frame.get_column(name), schema[name]
            whole = column.dtype.is_integer() or (column.dtype.is_float() and bool((column % 1 == 0).all()))
            is_same = whole if dtype == pl.Int64 else dtype == pl.Float64 and column.dtype.is_numeric()
            if is_same or column.dtype in castable:
                frame = frame.with_columns(column.cast(dtype))
        return frame

    def check(self, frame: pl.DataFrame, *, where: str = "") -> pl.DataFrame:
        """Check a frame against the declaration; returns the declared columns in the declared order, as polars.

        The frame is one of polars, pandas or Arrow. A column of another type is cast where no value changes: whole
        floats become int.

        Raises
        ------
        InputError
            A column is missing or has another dtype, a column that is not nullable has nulls, or two rows share a key.
        """
        place = f"table {self.name}" + (f" in {where}" if where else "")
        frame = convert_frame(frame, place)
        missing = [column.name for column in self.columns if column.name not in frame.columns]
        if missing:
            raise InputError("column(s) missing: " + ", ".join(missing), where=place, found=frame.columns)
        schema = self.schema()
        frame = self._fit_types(frame.select(list(schema)))
        wrong = [
            f"{name} is {frame.schema[name]}, not {dtype}"
            for name, dtype in schema.items()
            if frame[name].dtype != dtype
        ]
        if wrong:
            raise InputError("column(s) of another type", where=place, found=wrong)
        for column in self.columns:
            nulls = 0 if column.nullable else frame.get_column(column.name).null_count()
            if nulls:
                where = f"{place}, column {column.name}"
                raise InputError(
                    "nulls in a column that allows none", where=where, found=f"{nulls} of {frame.height} rows"
                )
        self._check_key(frame, place)
        return frame

    def _check_key(self, frame: pl.DataFrame, place: str) -> None:
        if not self.key or not frame.height:
            return
        keys = frame.select(self.key)
        repeated = keys.filter(keys.is_duplicated())
        if repeated.height:
            example = ", ".join(str(value) for value in repeated.row(0))
            where = f"{place}, key ({', '.join(self.key)})"
            raise InputError("key is not unique", where=where, found=f"{example} twice or more")

    def path(self, folder: str | Path) -> Path:
        """Path of the table's file in a run's `tables/` folder."""
        return Path(folder) / f"{self.name}.parquet"

    def write(self, frame: pl.DataFrame, folder: str | Path) -> Path:
        """Check the frame and write it as Parquet, atomically."""
        frame = self.check(frame)
        with replace_atomically(self.path(folder)) as temporary:
            frame.write_parquet(temporary, compression="zstd")
        return self.path(folder)

    def read(self, folder: str | Path) -> pl.DataFrame:
        """Read the table and check it; columns that were added since an older run are null.

        Raises
        ------
        InputError
            The file is missing, is not a Parquet file, or holds another table.
        """
        path = self.path(folder)
        if not path.is_file():
            present = sorted(file.stem for file in Path(folder).glob("*.parquet"))
            raise InputError(f"table {self.name} is missing", where=folder, found=present or "no tables at all")
        return self.read_file(path)

    def read_file(self, path: str | Path) -> pl.DataFrame:
        """Read a file of the table and check it, as `read` does."""
        return self.check(self._add_missing_columns(read_parquet(path)), where=str(path))

    def _add_missing_columns(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the columns that older versions did not write, with nulls."""
        import polars as pl

        absent = {column.name for column in self.columns if column.added} - set(frame.columns)
        return frame.with_columns(pl.lit(None, dtype=self.schema()[name]).alias(name) for name in sorted(absent))


def escape_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with an apostrophe before each text that a spreadsheet would run as a formula.

    Numbers written as text stay unchanged.

    >>> import polars as pl
    >>> escape_formulas(pl.DataFrame({"name": ["=cmd()", "-1", "sort"], "n": [1, 2, 3], "why": "@a"})).rows()
    [("'=cmd()", 1, "'@a"), ('-1', 2, "'@a"), ('sort', 3, "'@a")]
    """
    import polars as pl

    names = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    return frame.with_columns(
        pl.when(_is_formula(pl.col(name))).then(pl.lit("'") + pl.col(name)).otherwise(pl.col(name)).alias(name)
        for name in names
    )


def _is_formula(text: pl.Expr) -> pl.Expr:
    is_number = text.str.contains(r"^[+\-]?[0-9.]+([eE][+\-]?[0-9]+)?$")
    return text.str.contains(r"^[=+\-@\t\r]") & ~is_number


def read_parquet(path: str | Path) -> pl.DataFrame:
    """Read the rows of an untrusted Parquet file."""
    import polars as pl

    try:
        return pl.read_parquet(path, glob=False)
    # Polars panics on some damaged files; a panic is not an `Exception`.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise InputError("not a readable Parquet file", where=path, found=str(error)[:200]) from error


def _build_series(name: str, values: Any, dtype: Any) -> pl.Series:
    """Build a column of the declared type; a list column goes through JSON, which is much faster.

    >>> import numpy as np, polars as pl
    >>> _build_series("nodes", [[1, 2], []], pl.List(pl.Int64)).to_list()
    [[1, 2], []]
    >>> _build_series("n", np.ma.array([1, 0], mask=[False, True]), pl.Int64).to_list()
    [1, None]
    >>> _build_series("name", Coded(np.array([1, 0, 1]), ["scan", None]), pl.String).to_list()
    [None, 'scan', None]
    """
    import polars as pl

    if isinstance(values, Coded):
        return _build_series(name, values.values, dtype).gather(values.codes)
    if (mask := getattr(values, "mask", None)) is not None:
        series = pl.Series(name, values.data, dtype=dtype)
        return series.set(pl.Series(mask), None) if mask.any() else series
    if not isinstance(dtype, pl.List) or not values:
        return pl.Series(name, values, dtype=dtype)
    # Through one JSON text, 50 times faster than building list by list.
    import orjson

    text = pl.Series(name, [orjson.dumps(values).decode()], dtype=pl.String)
    return text.str.json_decode(pl.List(dtype)).explode()
