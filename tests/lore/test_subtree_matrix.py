"""Stages and whole plans over files as one dump each: another process replays them row for row, on both Spark lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lore.configuration import Outcome, run
from workbench.lore.dumps.dump_folder import Sidecar

pytestmark = pytest.mark.timeout(900)

STAGES = (
    "hash_aggregate",
    "sort_aggregate",
    "distinct_aggregates",
    "merge_inner",
    "hash_left",
    "broadcast_inner",
    "window",
    "window_group_limit",
    "sort",
    "scalar_subqueries",
)
SCANS = (
    *STAGES,
    "filter_project",
    "cartesian",
    "merge_existence",
    "broadcast_null_aware",
    "nested_full",
    "generate_outer",
    "union_all",
    "take_ordered",
    "reused_exchange",
    "reused_broadcast",
    "coalesce",
)
# A global sort draws the bounds of its partitions from samples whose seed is Spark's number of the RDD.
OTHER_BOUNDS = {"sort"}
LINES = [pytest.param("3.5", marks=pytest.mark.spark), pytest.param("4", marks=pytest.mark.network)]


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(("kind", "names"), [("stage", STAGES), ("scans", SCANS)])
def test_subtrees_over_files_are_replayed_row_for_row(
    kind: str, names: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    outcome = run(tmp_path, line=line, only=names, options=("--subtree", kind))  # type: ignore[arg-type]
    assert [
        f"{one.query} {one.lore_id}: {one.error or one.refused}"
        for one in outcome.operators
        if not one.dumped and one.lore_id is not None
    ] == []
    assert [str(one) for one in outcome.replays if not one.passed] == []
    tops = {query: max(one.lore_id for one in outcome.replays if one.query == query) for query in names}
    in_order = [one for one in outcome.replays if one.row_for_row]
    print(f"Spark {outcome.spark}, {kind}: {len(in_order)} of {len(outcome.replays)} dumps of {len(tops)} queries")
    moved = {one.query for one in outcome.replays if not one.row_for_row}
    assert moved <= (OTHER_BOUNDS if kind == "scans" else set())
    assert outcome.answers == outcome.original
    assert len(outcome.answers) == len(names)
    if kind == "scans":
        assert len(outcome.replays) == len(names)
        _check_files(outcome)


def _check_files(outcome: Outcome) -> None:
    """Inputs are the rows of whole files (Spark skips files that no filter meets), subqueries and reused exchanges."""
    whole = {n_rows * n_files for n_rows, n_most in ((1_000, 3), (375, 2), (75, 2)) for n_files in range(n_most + 1)}
    for folder in outcome.folders:
        sidecar = Sidecar.model_validate_json((Path(folder) / "plan.json").read_bytes())
        n_rows = {entry.n_rows for entry in sidecar.inputs if entry.kind != "subquery"}
        assert n_rows & whole if "/reused_" in folder else n_rows <= whole, folder
