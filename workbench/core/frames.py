"""Data frames of people: charts and tables take those of pandas, polars and Arrow alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from workbench.core.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import polars as pl

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def takes_frames(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let a function of polars frames take those of pandas and Arrow, too; `convert_frame` says how."""

    @functools.wraps(function)
    def convert_and_call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        place = function.__name__
        converted: dict[str, Any] = {name: convert_frame(value, place) for name, value in kwargs.items()}
        return function(*(convert_frame(value, place) for value in args), **converted)

    convert_and_call.takes_frames = True  # type: ignore[attr-defined]
    return convert_and_call


def convert_frame(value: Any, where: str) -> Any:
    """A frame or column of pandas, a polars LazyFrame or an Arrow table as a polars frame; all else as it is.

    Named levels of a pandas index become columns, as after `groupby`; an index without a name is dropped. NaN and NaT
    of pandas become null. A float column with missing values and whole numbers only becomes int, since pandas makes
    floats of such an int column.

    Raises
    ------
    InputError
        Column names have several levels or repeat, or a column mixes types.

    >>> import pandas as pd
    >>> times = pd.DataFrame({"query": ["q1", "q1", "q2"], "wall_s": [1.0, 2.0, None]})
    >>> convert_frame(times.groupby("query").mean(), "bars").rows()
    [('q1', 1.5), ('q2', None)]
    """
    library = type(value).__module__.partition(".")[0]
    if library == "pandas":
        import pandas as pd
        import polars as pl

        if isinstance(value, pd.Series):
            value = value.to_frame("value" if value.name is None else value.name)
        if not isinstance(value, pd.DataFrame):
            raise InputError("not a data frame", where=where, found=type(value).__name__, allowed="DataFrame or Series")
        if value.columns.nlevels > 1:
            do = 'join the levels: frame.columns = ["_".join(names) for names in frame.columns]'
            raise InputError("column names of several levels", where=where, found=list(value.columns)[:5], do=do)
        named = [name for name in value.index.names if name is not None and name not in value.columns]
        frame = value.reset_index(level=named).reset_index(drop=True) if named else value.reset_index(drop=True)
        frame.columns = [str(name) for name in frame.columns]
        if repeated := list(frame.columns[frame.columns.duplicated()]):
            raise InputError("column names repeat", where=where, found=repeated[:5], do="rename the columns")
        columns = {}
        for name in frame.columns:
            try:
                column: Any = pl.from_pandas(frame[name])
            except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
                do = f'make it one type, such as frame["{name}"].astype(str)'
                raise InputError(
                    "column of mixed types", where=f"{where}, column {name}", found=str(error)[:200], do=do
                ) from error
            was_int = column.dtype.is_float() and 0 < column.null_count() < len(column) and (column % 1 == 0).all()
            columns[name] = column.cast(pl.Int64, strict=False) if was_int else column
        return pl.DataFrame(columns)
    if library == "pyarrow" and hasattr(value, "column_names"):
        import polars as pl

        return pl.from_arrow(value)
    if library == "polars" and hasattr(value, "collect"):
        return value.collect()
    return value


def load_into_duckdb(frames: Mapping[str, pl.DataFrame]) -> duckdb.DuckDBPyConnection:
    """A DuckDB database in memory with the frames as tables; it loads no extension from a network.

    >>> import polars as pl
    >>> connection = load_into_duckdb({"times": pl.DataFrame({"wall_s": [1.0, 3.0]})})
    >>> connection.execute("SELECT avg(wall_s) FROM times").fetchone()
    (2.0,)
    """
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for name, frame in frames.items():
        connection.register(name, frame.to_arrow())
    return connection
