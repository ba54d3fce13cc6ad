"""Tables that an inspection writes."""

from __future__ import annotations

from workbench.tables import Column, Table

_IDENTITY = (
    Column("lore_id", "int", "Number of the folder loreId-N."),
    Column("input", "str", "Its folder: input-K, or output where the answer was kept."),
)

BATCHES = Table(
    "batches",
    "One row for each batch of an input: a Parquet file.",
    ("lore_id", "input", "partition", "batch"),
    (
        *_IDENTITY,
        Column("partition", "int", "Number of the partition in the original."),
        Column("batch", "int", "Number of the batch, in the order of reading."),
        Column("n_rows", "int", "Rows; null where the file cannot be read.", nullable=True),
        Column("n_bytes", "int", "Size of the file.", unit="bytes", nullable=True),
        Column("unpacked_bytes", "int", "What the file says its columns unpack to.", unit="bytes", nullable=True),
        Column("n_columns", "int", "Columns at the top.", nullable=True),
        Column("fault", "str", "Why it cannot be read; null where it can.", nullable=True),
    ),
)

PARTITIONS = Table(
    "partitions",
    "One row for each partition that lies in the dump, most rows first within an input.",
    ("lore_id", "input", "partition"),
    (
        *_IDENTITY,
        Column("partition", "int", "Number of the partition in the original."),
        Column("n_batches", "int", "Batches that lie in the dump."),
        Column("promised_batches", "int", "Batches that partition.meta counts; null without it.", nullable=True),
        Column("n_rows", "int", "Rows of the batches that can be read; null where none can.", nullable=True),
        Column("n_bytes", "int", "Size of its files.", unit="bytes"),
        Column("rows_share", "float", "Its rows as a share of the dumped rows of the input.", nullable=True),
        Column(
            "skew_ratio",
            "float",
            "Its rows over the median of the input's dumped partitions; null where that is 0.",
            unit="ratio",
            nullable=True,
        ),
        Column("note", "str", "What is remarkable or wrong; empty where nothing is."),
    ),
)

COLUMNS = Table(
    "columns",
    "One row for each column of an input, with what its values are.",
    ("lore_id", "input", "position"),
    (
        *_IDENTITY,
        Column("position", "int", "From 0, as names may stand twice."),
        Column("name", "str", "As the operator sees it."),
        Column("type", "str", "As SQL spells it; of the Parquet files where no meta tells."),
        Column("nullable", "bool", "May the operator meet nulls? Null where no meta tells.", nullable=True),
        Column("masked", "str", "hash, null or dropped; null where the values are the original ones.", nullable=True),
        Column("n_rows", "int", "Rows that were looked at."),
        Column("n_nulls", "int", "Nulls among them; null where the values were not read.", nullable=True),
        Column("n_nan", "int", "Floats that are no number; null for other types.", nullable=True),
        Column("minimum", "str", "Smallest value, cut; null for nested types and without values.", nullable=True),
        Column("maximum", "str", "Largest value, cut; null for nested types and without values.", nullable=True),
        Column("n_distinct", "int", "Different values but null; from 1,024 on within about 10 %.", nullable=True),
        Column("distinct_exact", "bool", "Is n_distinct counted and not estimated?", nullable=True),
    ),
)

ALL = (BATCHES, PARTITIONS, COLUMNS)
