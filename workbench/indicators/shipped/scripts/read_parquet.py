"""Read a Parquet file: whole numbers, fractions and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def measure(run: Run) -> None:
    import _parquet
    import _reading

    rows = run.whole("rows", 50_000, 1)
    compression = run.choice("compression", ("none", "gzip"))

    def write(path: str, columns: dict[str, list[Any]]) -> None:
        with open(path, "wb") as file:
            file.write(_parquet.written(columns, gzip=compression == "gzip"))

    _reading.measure(run, rows, "table.parquet", write, lambda frames, path: frames.read_parquet(path))


if __name__ == "__main__":
    import _measure

    _measure.main("ReadParquet", measure)
