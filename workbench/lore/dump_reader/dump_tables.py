"""Inputs and kept output of a dump as tables, without Spark and without loading its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_folder import check_integrity, read_sidecar
from workbench.lore.dumps.dump_sidecar import InputColumn, Sidecar
from workbench.lore.replays.row_differences import choose_display_names

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class DumpTables:
    """A dump whose files are those of its sidecar.

    `inputs`: By name (`input-0`), polars tables in the order of partitions and batches; read when they are asked for.
    `output`: The kept output; null when the dump did not keep it.
    """

    folder: Path
    sidecar: Sidecar = field(repr=False)

    @property
    def inputs(self) -> Mapping[str, pl.DataFrame]:
        """Tables of the inputs by name."""
        return _InputTables(self)

    @property
    def output(self) -> pl.DataFrame | None:
        """The kept output."""
        if not self.sidecar.output.kept:
            return None
        return self.read_table("output", self.sidecar.output.columns)

    def read_table(self, name: str, columns: list[InputColumn]) -> pl.DataFrame:
        """The batches of one folder in order, with the names of the query; those that repeat have their position."""
        import polars as pl

        stored_columns = [column for column in columns if column.masked != "dropped"]
        names = choose_display_names(column.name for column in stored_columns)
        files = sorted(
            (
                path
                for path in self.sidecar.files
                if path.startswith(f"{name}/partition-") and path.endswith(".parquet")
            ),
            key=lambda path: [int(part.rpartition("-")[2].removesuffix(".parquet")) for part in path.split("/")[1:]],
        )
        if not files:
            return pl.DataFrame({heading: [] for heading in names})
        frame = pl.concat([pl.read_parquet(self.folder / path, hive_partitioning=False) for path in files])
        return frame.select(
            pl.col(column.stored_as).alias(shown) for column, shown in zip(stored_columns, names, strict=True)
        )


class _InputTables(Mapping[str, "pl.DataFrame"]):
    def __init__(self, tables: DumpTables) -> None:
        self._tables = tables
        self._columns = {f"input-{entry.index}": entry.columns for entry in tables.sidecar.inputs}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._columns:
            raise ConfigError("no such input", where=str(self._tables.folder), found=name, allowed=list(self._columns))
        return self._tables.read_table(name, self._columns[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def open_tables(folder: Path) -> DumpTables:
    """Open a dump to read its rows; every file is compared with its checksum first."""
    sidecar = read_sidecar(folder)
    check_integrity(folder, sidecar)
    return DumpTables(folder, sidecar)
