"""plan.json, the sidecar of a dump: what was dumped, from where, with which checksums and which answer to expect.

A dump without it, or with one that does not hold, is never loaded. See `trust` for who may have written it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = "workbench-lore/1"
FILE_NAME = "plan.json"
# Stands in the files of rows without columns, which Parquet cannot hold.
ZERO_COLUMN = "__rows"
RECOMPUTED = "the operator recomputed at dump time"
ORIGINAL = "the original run"
Sha256 = r"^[0-9a-f]{64}$"
# Relative, forward slashes, no empty, dot or hidden-parent part: see `trust` for the check against the folder.
RelativePath = r"^(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._/-]{1,200}$"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Versions(_Model):
    """What the dump was made with; plan.meta can be loaded by the same Spark only."""

    workbench: str
    spark: str
    scala: str
    java: str
    python: str
    pyarrow: str | None = None
    pandas: str | None = None
    numpy: str | None = None


class InputColumn(_Model):
    """A column of an input, as the operator sees it, and under which name it lies in the Parquet files."""

    name: str
    stored_as: str
    type: Any = Field(description="Spark's JSON of the type.")
    nullable: bool
    expr_id: int
    masked: Literal["hash", "null", "dropped"] | None = None


class InputEntry(_Model):
    """One input of the operator: input-K."""

    index: int = Field(ge=0)
    kind: Literal["rows", "columnar", "broadcast", "subquery"]
    n_partitions: int = Field(ge=0, description="Of the original, dumped or not.")
    partitions: list[int] = Field(description="Those that were dumped.")
    batches: dict[str, int] = Field(description="Batches by dumped partition.")
    n_rows: int = Field(ge=0)
    n_bytes: int = Field(ge=0)
    zero_columns: bool = False
    columns: list[InputColumn]


class PartitionPrint(_Model):
    """Fingerprint of one partition of an output: integers that equal rows give, in any order, and one for the order."""

    n_rows: int
    hash_sum: int
    hash_xor: int
    ordered_sum: int


class ExpectedError(_Model):
    """What the operator died of in the original."""

    error_class: str
    message: str
    partition: int | None = None


class Output(_Model):
    """What the operator gives for these inputs."""

    compared_with: Literal["the operator recomputed at dump time", "the original run"] = (
        "the operator recomputed at dump time"
    )
    columns: list[InputColumn]
    n_partitions: int = Field(ge=0)
    fingerprint: dict[str, PartitionPrint] = Field(description="By partition; of those dumped.")
    kept: bool = Field(default=False, description="Are the rows themselves in output/?")
    error: ExpectedError | None = None


class FileEntry(_Model):
    """A file of the dump."""

    n_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=Sha256)


class Sidecar(_Model):
    """The whole of plan.json."""

    format: Literal["workbench-lore/1"] = "workbench-lore/1"
    created_at: str
    versions: Versions
    lore_id: int = Field(ge=0)
    operator: str = Field(description="Spark's name of the node.")
    operator_class: str
    operator_text: str
    tree: str = Field(description="The whole plan with ids, without literals of paths.")
    plan_hash: str = Field(pattern=Sha256, description="Of the plan's shape.")
    time_zone: str
    ansi: bool
    confs: dict[str, str] = Field(description="Settings that matter to the result.")
    inputs: list[InputEntry]
    output: Output
    masked: str | None = None
    python_functions: list[str] = []
    has_plan: bool = True
    files: dict[str, FileEntry] = Field(description="By path below the folder; all files but plan.json itself.")
    hmac: str | None = Field(default=None, pattern=Sha256)

    def signed_bytes(self) -> bytes:
        """What the HMAC is of: everything but itself, in one spelling."""
        import json

        document = self.model_dump(mode="json", exclude={"hmac"})
        return json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()
