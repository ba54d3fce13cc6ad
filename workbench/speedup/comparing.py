"""Runs of the same query in two logs, found and aligned; the comparison as tables and charts of a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from workbench import charts, files, runs
from workbench.errors import ConfigError, InputError
from workbench.speedup.alignment import ALIGNED, PLAN_SIDES, Alignment, align
from workbench.speedup.calibration import natural
from workbench.speedup.execution import Execution, read_executions
from workbench.speedup.explain_sources import single
from workbench.tables import Column, Table

if TYPE_CHECKING:
    import altair as alt

QUERY = Column("query", "str", "Description of the query.")
COMPARED = Table("compared", ALIGNED.meaning, ("query", *ALIGNED.key), (QUERY, *ALIGNED.columns))
COMPARED_SIDES = Table("compared_sides", PLAN_SIDES.meaning, ("query", *PLAN_SIDES.key), (QUERY, *PLAN_SIDES.columns))


def compared(
    baseline: str, candidate: str, *, queries: Sequence[str] = (), sql_ids: str | None = None, number: int | None = None
) -> dict[str, Alignment]:
    """Query to the alignment of its runs in two logs (or of two executions of one log).

    Parameters
    ----------
    baseline, candidate
        Event logs; they may be the same.
    queries
        Descriptions; all common ones by default.
    sql_ids
        Two ids, "3,17", in place of queries.
    number
        Which run of the query, from 0; by default the last run that succeeded on both sides.

    Raises
    ------
    InputError
        A log cannot be read, no query is common, or a query, run or execution is not there.
    ConfigError
        One log without two executions named, or `sql_ids` that are not two numbers.
    """
    first = _executions(baseline)
    second = first if candidate == baseline else _executions(candidate)
    if sql_ids is not None:
        if queries or number is not None:
            raise ConfigError("executions and queries", do="give --sql-ids, or --query with --run, not both")
        ids = _ids(sql_ids)
        pair = [_of_id(side, sql_id) for side, sql_id in zip((first, second), ids, strict=True)]
        return {f"{pair[0].query or 'SQL'} ({ids[0]}, {ids[1]})": align(*pair)}
    if candidate == baseline:
        raise ConfigError("one log alone", do="name two of its executions: --sql-ids 3,17; or give a second log")
    sides = [_by_query(side) for side in (first, second)]
    common = sorted(set(sides[0]) & set(sides[1]), key=natural)
    if not common:
        shown = "; ".join(", ".join(sorted(side)[:8]) or "none" for side in sides)
        raise InputError("no query ran on both sides", found=shown, do="name two executions: --sql-ids 3,17")
    if unknown := [query for query in queries if query not in common]:
        raise InputError("no such query on both sides", found=unknown, allowed=common[:40])
    return {query: align(*_chosen(query, sides[0][query], sides[1][query], number)) for query in queries or common}


def chart_compared(name: str, one: Alignment) -> alt.HConcatChart:
    """What became of each operator of a query? Both plans, coloured by wall time."""
    return charts.plan_trees(
        one.sides,
        title=f"{name}: what became of each operator",
        side="side",
        node="node_id",
        parent="parent_id",
        pair="row",
        label="name",
        value="wall_s",
        details=("change", "rows"),
        subtitle=f"{one.baseline_s:,.3f} s and {one.candidate_s:,.3f} s",
    )


def write(found: Mapping[str, Alignment], out: Path, logs: Sequence[str]) -> None:
    """The tables in a run folder, and a Vega-Lite chart of each query beside them."""
    run = runs.start("speedup", folder=out, title="Compare", command="workbench speedup compare")
    for table, part in ((COMPARED, "aligned"), (COMPARED_SIDES, "sides")):
        frames = [getattr(one, part).with_columns(query=pl.lit(name)) for name, one in found.items()]
        run.write_table(table, table.check(pl.concat(frames)))
    for number, (name, one) in enumerate(found.items()):
        files.write_text(run.folder / "charts" / f"{number:03d}.vl.json", chart_compared(name, one).to_json())
    for log in dict.fromkeys(logs):
        run.add_input(log)
    run.conclude("valid", (), f"{len(found)} queries compared operator by operator.")


def _executions(log: str) -> list[Execution]:
    found = [one for one in read_executions(single(log)) if one.stages and one.nodes]
    if not found:
        raise InputError("the log holds no SQL execution that ran tasks and ended", where=log)
    return found


def _by_query(executions: Sequence[Execution]) -> dict[str, list[Execution]]:
    found: dict[str, list[Execution]] = {}
    for one in executions:
        if one.status == "succeeded" and one.query:
            found.setdefault(one.query, []).append(one)
    return found


def _chosen(
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


def _ids(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ConfigError("not two executions", where="--sql-ids", found=text[:80], allowed="two numbers, such as 3,17")
    return int(parts[0]), int(parts[1])


def _of_id(executions: Sequence[Execution], sql_id: int) -> Execution:
    # Also one that another started, as the profile names it: it is compared as part of that.
    found = [one for one in executions if sql_id in (one.sql_id, *one.inner_ids)]
    if not found:
        ids = [one.sql_id for one in executions][:40]
        raise InputError("no such SQL execution with a plan and tasks", where="--sql-ids", found=sql_id, allowed=ids)
    return found[0]
