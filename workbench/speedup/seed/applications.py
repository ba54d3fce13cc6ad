"""What the seed generator knows of one application: a few columns of four tables of its profile."""

from __future__ import annotations

from dataclasses import dataclass

CODEGEN = "WholeStageCodegen"


@dataclass(frozen=True)
class StageRow:
    """A row of `sql_to_stage_information`: wall time of a stage for a job, and its operators as one text."""

    duration_ms: int | None
    nodes: str


@dataclass(frozen=True)
class SeedApplication:
    """One application as the generator sees it.

    `spans` are rows (codegen span, operator in it) over all queries, `span_times` rows (node, metric total) of the
    metrics called `duration`. Texts are as in the profile files, since the arithmetic cuts them at commas.
    """

    where: str
    name: str
    duration_ms: int
    accelerated: bool
    spans: tuple[tuple[str, str], ...]
    span_times: tuple[tuple[str, int], ...]
    stages: tuple[StageRow, ...]
