"""Comparison of two logs: runs of the same query aligned, with tables and charts for a run folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from workbench import stats
from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.speedup.attribution.executions import Execution, read_executions
from workbench.speedup.attribution.operator_explanation import is_recording, measure_single_log, read_single_log
from workbench.speedup.calibration.booked_times import Booking, NodeTimes
from workbench.speedup.calibration.factors import WARM_RUN_NOISE, natural_sort_key
from workbench.speedup.charts import chart_plan_alignment
from workbench.speedup.comparison.comparability import check_comparability, list_invalid_reasons
from workbench.speedup.comparison.plan_alignment import PlanAlignment, align_plans
from workbench.speedup.recording.recording_plan import load_recording
from workbench.speedup.tables import COMPARABILITY, COMPARED, COMPARED_SIDES, OPERATOR_SUMS

MIN_RATIO_SHARE = 0.01


@dataclass(frozen=True)
class LogComparison:
    """Alignment of each query, with the operators' sums over all of them and the ratio of the whole.

    `comparability` has the differences between the two logs; no row where both sides are of one log.
    """

    alignments: dict[str, PlanAlignment]
    comparability: pl.DataFrame = field(default_factory=lambda: COMPARABILITY.frame([]))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the sides cannot be compared; empty when they can."""
        return list_invalid_reasons(self.comparability)

    @property
    def sums(self) -> pl.DataFrame:
        """Wall time of each operator over all queries, most time first; no ratio where a side has less than 1 %."""
        totals: list[Counter[str]] = [Counter(), Counter()]
        for alignment in self.alignments.values():
            for total, times in zip(totals, alignment.by_operator, strict=True):
                total.update(times)
        columns = ("baseline_wall_s", "candidate_wall_s")
        rows = [
            {"operator": name, columns[0]: totals[0][name], columns[1]: totals[1][name]}
            for name in sorted(totals[0] | totals[1])
        ]
        sums = pl.DataFrame(rows, schema={"operator": pl.String, columns[0]: pl.Float64, columns[1]: pl.Float64})
        shares = [pl.col(name) / pl.col(name).sum() >= MIN_RATIO_SHARE for name in columns]
        ratio = pl.when(*shares).then(pl.col("baseline_wall_s") / pl.col("candidate_wall_s"))
        return OPERATOR_SUMS.check(sums.with_columns(ratio=ratio)).sort(
            pl.max_horizontal(columns), "operator", descending=[True, False]
        )

    @property
    def overall(self) -> stats.Interval:
        """Geometric mean of the queries' ratios, with the noise of one session a side; one query has no interval."""
        logs = np.log([alignment.baseline_s / alignment.candidate_s for alignment in self.alignments.values()])
        if len(logs) < 2:
            return stats.Interval(float(np.exp(logs.mean())), None, None, stats.LEVEL, len(logs), "one query")
        return WARM_RUN_NOISE.estimate_mean_ratio(logs, (1, 1), stats.LEVEL)

    @property
    def answer(self) -> str:
        """The ratio of the whole, with its verdict."""
        sides = [
            sum(getattr(alignment, name) for alignment in self.alignments.values())
            for name in ("baseline_s", "candidate_s")
        ]
        n, ratio = len(self.alignments), self.overall
        verdict = stats.decide_verdicts([ratio])[0].verdict
        interval = "no interval: one query"
        if ratio.low is not None and ratio.high is not None:
            interval = f"{100 * ratio.level:.0f} % interval {ratio.low:.2f} to {ratio.high:.2f}, one run of each side"
        verdict_text = "Not comparable" if self.reasons else verdict
        return (
            f"{verdict_text}: the candidate runs {n} {'query' if n == 1 else 'queries'} {ratio.estimate:.2f}x as fast"
            f" ({interval}); {sides[0]:,.3f} s against {sides[1]:,.3f} s in all."
        )


def compare_logs(
    baseline: str, candidate: str, *, queries: Sequence[str] = (), sql_ids: str | None = None, number: int | None = None
) -> LogComparison:
    """Align the runs of each query in two logs, or two executions of one log.

    `number`: Run of the query, from 0; by default the last run that succeeded on both sides.

    Returns: Time is booked as by `explain` on the same log: prices are fitted to all of its executions.
    """
    first = _LogExecutions(baseline)
    second = first if candidate == baseline else _LogExecutions(candidate)
    if sql_ids is not None:
        if queries or number is not None:
            raise ConfigError("executions and queries", do="give --sql-ids, or --query with --run, not both")
        # Parse the SQL ids of the baseline's and the candidate's execution, such as 3,17.
        parts = [part.strip() for part in sql_ids.split(",")]
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            raise ConfigError(
                "not two executions", where="--sql-ids", found=sql_ids[:80], allowed="two numbers, such as 3,17"
            )
        ids = int(parts[0]), int(parts[1])
        ours, theirs = (
            _find_execution(side.executions, sql_id) for side, sql_id in zip((first, second), ids, strict=True)
        )
        name = f"{ours.query or 'SQL'} ({ids[0]}, {ids[1]})"
        return LogComparison({name: _align_runs(first, second, ours, theirs)})
    if candidate == baseline:
        raise ConfigError("a single log", do="name two of its executions: --sql-ids 3,17; or give a second log")
    sides = []
    for side in (first, second):
        groups: dict[str, list[Execution]] = {}
        for execution in side.executions:
            if execution.status == "succeeded" and execution.query:
                groups.setdefault(execution.query, []).append(execution)
        sides.append(groups)
    common = sorted(set(sides[0]) & set(sides[1]), key=natural_sort_key)
    if not common:
        shown = "; ".join(", ".join(sorted(side)[:8]) or "none" for side in sides)
        raise InputError("no query ran on both sides", found=shown, do="name two executions: --sql-ids 3,17")
    if unknown := [query for query in queries if query not in common]:
        raise InputError("no such query on both sides", found=unknown, allowed=common[:40])
    return LogComparison(
        {
            query: _align_runs(first, second, *_choose_runs(query, sides[0][query], sides[1][query], number))
            for query in queries or common
        },
        # One run of each side is compared, warm or not.
        check_comparability([first.facts], [second.facts], named=True, first_runs=True).filter(
            ~pl.col("property").is_in(["applications", "warm runs"]) | (pl.col("severity") == "invalid")
        ),
    )


def choose_logs(baseline: str, candidate: str | None) -> tuple[str, str]:
    """Choose the two logs to compare; of a recording, those of the first session of its first two sides."""
    if candidate is not None or not is_recording(baseline):
        return baseline, candidate or baseline
    first: dict[str, str] = {}
    for label, _, path in load_recording(baseline).iterate_logs():
        first.setdefault(label, str(path))
    if len(first) < 2:
        raise InputError("not two sides with logs", where=baseline, found=list(first), do="give two logs")
    ours, theirs, *_ = first.values()
    return ours, theirs


class _LogExecutions:
    """Executions of a log, and their booking."""

    def __init__(self, log: str) -> None:
        self.facts = read_single_log(log)
        self.executions = [
            execution for execution in read_executions(self.facts) if execution.stages and execution.nodes
        ]
        if not self.executions:
            raise InputError("the log has no SQL execution that ran tasks and ended", where=log)
        self.booking = Booking(measure_single_log(self.facts))

    def book_nodes(self, execution: Execution) -> NodeTimes | None:
        """Time by node; null for a failed execution, which is not booked."""
        if execution.query not in self.booking.queries:
            return None
        return self.booking.book_nodes(execution.query, execution.sql_id) or None


def _align_runs(first: _LogExecutions, second: _LogExecutions, ours: Execution, theirs: Execution) -> PlanAlignment:
    booked = first.book_nodes(ours), second.book_nodes(theirs)
    if booked[0] is None or booked[1] is None:
        return align_plans(ours, theirs)
    return align_plans(ours, theirs, (booked[0], booked[1]))


def write_comparison(comparison: LogComparison, out: Path, logs: Sequence[str]) -> None:
    """Write the tables into a run folder, with a Vega-Lite chart of each query."""
    run = run_folder.start_run("speedup", folder=out, title="Compare", command="workbench speedup compare")
    for table, part in ((COMPARED, "aligned"), (COMPARED_SIDES, "sides")):
        frames = [getattr(pair, part).with_columns(query=pl.lit(name)) for name, pair in comparison.alignments.items()]
        run.write_table(table, table.check(pl.concat(frames)))
    run.write_table(OPERATOR_SUMS, comparison.sums)
    run.write_table(COMPARABILITY, comparison.comparability)
    for number, (name, alignment) in enumerate(comparison.alignments.items()):
        files.write_text(
            run.folder / "charts" / f"{number:03d}.vl.json", chart_plan_alignment(name, alignment).to_json()
        )
    for log in dict.fromkeys(logs):
        run.add_input(log)
    run.conclude("invalid" if comparison.reasons else "valid", comparison.reasons, comparison.answer)


def _choose_runs(
    query: str, first: Sequence[Execution], second: Sequence[Execution], number: int | None
) -> tuple[Execution, Execution]:
    """Choose the same run of a query on both sides: number `number`, or the last common one, or each side's last."""
    ours, theirs = (
        {execution.number: execution for execution in first},
        {execution.number: execution for execution in second},
    )
    common = sorted(set(ours) & set(theirs))
    if number is None and not common:
        return first[-1], second[-1]
    if number is not None and number not in common:
        raise InputError("no such run on both sides", where=query, found=number, allowed=common or "none")
    chosen = common[-1] if number is None else number
    return ours[chosen], theirs[chosen]


def _find_execution(executions: Sequence[Execution], sql_id: int) -> Execution:
    # The profile also lists inner executions; they are compared as part of the outer one.
    matches = [execution for execution in executions if sql_id in (execution.sql_id, *execution.inner_ids)]
    if not matches:
        ids = [execution.sql_id for execution in executions][:40]
        raise InputError("no such SQL execution with a plan and tasks", where="--sql-ids", found=sql_id, allowed=ids)
    return matches[0]
