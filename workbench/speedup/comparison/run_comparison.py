"""Comparison of two logs: runs of the same query aligned, with tables and charts for a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.speedup.attribution.executions import Execution, read_executions
from workbench.speedup.attribution.operator_explanation import read_single_log
from workbench.speedup.calibration.factors import natural_sort_key
from workbench.speedup.charts import chart_plan_alignment
from workbench.speedup.comparison.plan_alignment import PlanAlignment, align_plans
from workbench.speedup.tables import COMPARED, COMPARED_SIDES


def compare_logs(
    baseline: str, candidate: str, *, queries: Sequence[str] = (), sql_ids: str | None = None, number: int | None = None
) -> dict[str, PlanAlignment]:
    """Align the runs of each query in two logs, or two executions of one log.

    Parameters
    ----------
    baseline, candidate
        Event logs; they may be the same.
    queries
        Descriptions of queries; all common ones by default.
    sql_ids
        Two ids, "3,17", instead of queries.
    number
        Run of the query, from 0; by default the last run that succeeded on both sides.

    Returns
    -------
    dict
        Alignment by query.

    Raises
    ------
    InputError
        A log cannot be read, the logs have no query in common, or a query, run or execution is missing.
    ConfigError
        There is one log without two executions, or `sql_ids` is not two numbers.
    """
    first = _read_log_executions(baseline)
    second = first if candidate == baseline else _read_log_executions(candidate)
    if sql_ids is not None:
        if queries or number is not None:
            raise ConfigError("executions and queries", do="give --sql-ids, or --query with --run, not both")
        ids = _parse_sql_ids(sql_ids)
        pair = [_find_execution(side, sql_id) for side, sql_id in zip((first, second), ids, strict=True)]
        return {f"{pair[0].query or 'SQL'} ({ids[0]}, {ids[1]})": align_plans(*pair)}
    if candidate == baseline:
        raise ConfigError("a single log", do="name two of its executions: --sql-ids 3,17; or give a second log")
    sides = [_group_by_query(side) for side in (first, second)]
    common = sorted(set(sides[0]) & set(sides[1]), key=natural_sort_key)
    if not common:
        shown = "; ".join(", ".join(sorted(side)[:8]) or "none" for side in sides)
        raise InputError("no query ran on both sides", found=shown, do="name two executions: --sql-ids 3,17")
    if unknown := [query for query in queries if query not in common]:
        raise InputError("no such query on both sides", found=unknown, allowed=common[:40])
    return {
        query: align_plans(*_choose_runs(query, sides[0][query], sides[1][query], number))
        for query in queries or common
    }


def write_comparison(found: Mapping[str, PlanAlignment], out: Path, logs: Sequence[str]) -> None:
    """Write the tables into a run folder, with a Vega-Lite chart of each query."""
    run = run_folder.start_run("speedup", folder=out, title="Compare", command="workbench speedup compare")
    for table, part in ((COMPARED, "aligned"), (COMPARED_SIDES, "sides")):
        frames = [getattr(one, part).with_columns(query=pl.lit(name)) for name, one in found.items()]
        run.write_table(table, table.check(pl.concat(frames)))
    for number, (name, one) in enumerate(found.items()):
        files.write_text(run.folder / "charts" / f"{number:03d}.vl.json", chart_plan_alignment(name, one).to_json())
    for log in dict.fromkeys(logs):
        run.add_input(log)
    run.conclude("valid", (), f"{len(found)} queries compared operator by operator.")


def _read_log_executions(log: str) -> list[Execution]:
    found = [one for one in read_executions(read_single_log(log)) if one.stages and one.nodes]
    if not found:
        raise InputError("the log holds no SQL execution that ran tasks and ended", where=log)
    return found


def _group_by_query(executions: Sequence[Execution]) -> dict[str, list[Execution]]:
    found: dict[str, list[Execution]] = {}
    for one in executions:
        if one.status == "succeeded" and one.query:
            found.setdefault(one.query, []).append(one)
    return found


def _choose_runs(
    query: str, first: Sequence[Execution], second: Sequence[Execution], number: int | None
) -> tuple[Execution, Execution]:
    ours, theirs = {one.number: one for one in first}, {one.number: one for one in second}
    common = sorted(set(ours) & set(theirs))
    if number is None and not common:
        return first[-1], second[-1]
    if number is not None and number not in common:
        raise InputError("no such run on both sides", where=query, found=number, allowed=common or "none")
    chosen = common[-1] if number is None else number
    return ours[chosen], theirs[chosen]


def _parse_sql_ids(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ConfigError("not two executions", where="--sql-ids", found=text[:80], allowed="two numbers, such as 3,17")
    return int(parts[0]), int(parts[1])


def _find_execution(executions: Sequence[Execution], sql_id: int) -> Execution:
    # The profile also lists inner executions; they are compared as part of the outer one.
    found = [one for one in executions if sql_id in (one.sql_id, *one.inner_ids)]
    if not found:
        ids = [one.sql_id for one in executions][:40]
        raise InputError("no such SQL execution with a plan and tasks", where="--sql-ids", found=sql_id, allowed=ids)
    return found[0]
