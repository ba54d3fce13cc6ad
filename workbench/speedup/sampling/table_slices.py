"""Slices of Parquet tables: a share of the rows of the large ones, the small ones whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.core.errors import InputError

# A table smaller than this share of the largest one stays whole: a dimension without most of its rows joins with
# little.
MIN_SLICED_SHARE = 0.1
# Places of a table that its slice is taken from, if its rows are not more; each keeps neighbours together.
N_PLACES = 20


@dataclass(frozen=True)
class TableSlice:
    """A table in a folder of slices. `n_rows`, `n_taken`: Its rows, and those taken; both null for a whole table."""

    name: str
    n_rows: int | None = None
    n_taken: int | None = None


@dataclass(frozen=True)
class _RowGroup:
    path: Path
    number: int
    n_rows: int


def slice_tables(views: Mapping[str, str], folder: Path, share: float) -> list[TableSlice]:
    """Write slices of the large tables into a new folder, and links to the small ones.

    `views`: Path of each table, a Parquet file or a folder of them, by name.

    Returns: One row a table. A slice has the same share of each large table, from places at equal distances. Rows of
    two sliced tables that belong together are seldom both taken, so a join of two large tables meets fewer partners
    than in the whole.
    """
    folder.mkdir(parents=True)
    paths = {name: Path(path) for name, path in views.items()}
    sizes = {name: sum(file.stat().st_size for file in _list_files(path)) for name, path in paths.items()}
    largest = max(sizes.values())
    slices = []
    for name, path in paths.items():
        target = folder / f"{name}.parquet"
        if sizes[name] < MIN_SLICED_SHARE * largest:
            target.symlink_to(path.absolute(), target_is_directory=path.is_dir())
            slices.append(TableSlice(name))
        else:
            slices.append(_slice_table(name, path, target, share))
    return slices


def _list_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*.parquet") if file.is_file())


def _slice_table(name: str, path: Path, target: Path, share: float) -> TableSlice:
    import pyarrow.parquet as pq

    groups = list(_iterate_row_groups(_list_files(path)))
    n_rows = sum(group.n_rows for group in groups)
    wanted = max(1, round(share * n_rows))
    taken: dict[Path, list[tuple[int, int]]] = {}
    for group, n_taken in choose_rows([group.n_rows for group in groups], wanted):
        taken.setdefault(groups[group].path, []).append((groups[group].number, n_taken))
    for file, parts in taken.items():
        # Folders of partitioned tables hold columns in their names.
        written = target if path.is_file() else target / file.relative_to(path)
        written.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetFile(file) as source, pq.ParquetWriter(written, source.schema_arrow) as writer:
            for number, n_taken in parts:
                writer.write_table(source.read_row_group(number).slice(0, n_taken))
    return TableSlice(name, n_rows, wanted)


def _iterate_row_groups(files: Sequence[Path]) -> Iterator[_RowGroup]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        try:
            metadata = pq.read_metadata(file)
        except (OSError, pa.ArrowException) as error:
            raise InputError("a table cannot be read", where=file, found=str(error)[:200], allowed="Parquet") from error
        for number in range(metadata.num_row_groups):
            yield _RowGroup(file, number, metadata.row_group(number).num_rows)


def choose_rows(sizes: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """Row groups to take from, at equal distances, and the rows of each, which sum up to `wanted`.

    `sizes`: Rows of each row group. `wanted`: At most their sum.

    >>> choose_rows([100] * 8, 40), choose_rows([100, 100], 150)
    ([(0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (5, 5), (6, 5), (7, 5)], [(0, 75), (1, 75)])
    """
    filled = np.flatnonzero(np.asarray(sizes) > 0)
    n_full = -(-wanted * len(filled) // max(sum(sizes), 1))
    n_places = min(len(filled), max(N_PLACES, n_full))
    middles = (np.arange(n_places) + 0.5) * len(filled) / max(n_places, 1)
    chosen = [int(filled[int(middle)]) for middle in middles]
    counts = dict.fromkeys(chosen, 0)
    # Short groups give all that they have, and the others share the rest.
    for place, group in enumerate(sorted(chosen, key=lambda group: sizes[group])):
        counts[group] = min(sizes[group], -(-wanted // (n_places - place)))
        wanted -= counts[group]
    for group in (int(group) for group in filled if int(group) not in counts):
        counts[group] = min(sizes[group], wanted)
        wanted -= counts[group]
    return [(group, counts[group]) for group in sorted(counts) if counts[group]]
