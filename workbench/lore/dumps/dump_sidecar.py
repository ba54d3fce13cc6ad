"""Model of plan.json, the sidecar of a dump: versions, inputs, expected output and checksums.

A dump without a valid sidecar is never loaded. See `trust_check` for its signature.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SIDECAR_FORMAT = "workbench-lore/1"
SIDECAR_FILE = "plan.json"
# Column of files of rows without columns, which Parquet cannot store.
ZERO_COLUMN = "__rows"
# Begins the name of a dump that has several operators: those of a subtree of the plan.
SUBTREE_PREFIX = "Subtree of "
RECOMPUTED = "the operator recomputed at dump time"
ORIGINAL_RUN = "the original run"
Sha256 = r"^[0-9a-f]{64}$"
# Relative, with forward slashes, without . and .. parts.
RelativePath = r"^(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._/-]{1,200}$"


class _SidecarModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Versions(_SidecarModel):
    """Versions at the dump; only the same Spark can load plan.meta."""

    workbench: str
    spark: str
    scala: str
    java: str
    python: str
    pyarrow: str | None = None
    pandas: str | None = None
    numpy: str | None = None


class InputColumn(_SidecarModel):
    """A column of an input for the operator, and its name in the Parquet files."""

    name: str
    stored_as: str
    type: Any = Field(description="Spark's JSON of the type.")
    nullable: bool
    expr_id: int
    masked: Literal["hash", "null", "dropped"] | None = None


class InputEntry(_SidecarModel):
    """One input of the operator: input-K."""

    index: int = Field(ge=0)
    kind: Literal["rows", "columnar", "broadcast", "subquery"]
    n_partitions: int = Field(ge=0, description="Partitions of the original.")
    partitions: list[int] = Field(description="Dumped partitions.")
    batches: dict[str, int] = Field(description="Batches by dumped partition.")
    n_rows: int = Field(ge=0)
    n_bytes: int = Field(ge=0)
    zero_columns: bool = False
    columns: list[InputColumn]


class PartitionPrint(_SidecarModel):
    """Fingerprint of an output partition: sums independent of the order of rows, and one that depends on it."""

    n_rows: int
    hash_sum: int
    hash_xor: int
    ordered_sum: int


class ExpectedError(_SidecarModel):
    """Error of the operator in the original."""

    error_class: str
    message: str
    partition: int | None = None


class Output(_SidecarModel):
    """Expected output of the operator for these inputs."""

    compared_with: Literal["the operator recomputed at dump time", "the original run"] = (
        "the operator recomputed at dump time"
    )
    columns: list[InputColumn]
    n_partitions: int = Field(ge=0)
    fingerprint: dict[str, PartitionPrint] = Field(description="By dumped partition.")
    kept: bool = Field(default=False, description="Whether output/ has the rows.")
    error: ExpectedError | None = None


class FileEntry(_SidecarModel):
    """A file of the dump."""

    n_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=Sha256)


class Sidecar(_SidecarModel):
    """Model of plan.json."""

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
    confs: dict[str, str] = Field(description="Settings that affect the result.")
    inputs: list[InputEntry]
    output: Output
    masked: str | None = None
    python_functions: list[str] = []
    has_plan: bool = True
    files: dict[str, FileEntry] = Field(description="By path below the folder; all files but plan.json itself.")
    hmac: str | None = Field(default=None, pattern=Sha256)

    def signed_bytes(self) -> bytes:
        """Canonical bytes for the HMAC: everything but the HMAC itself."""
        import json

        document = self.model_dump(mode="json", exclude={"hmac"})
        return json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()
