"""Queries planned on a candidate without running them, held to a run of the baseline and to one of the candidate."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.console import terminal
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.runs import run_folder
from workbench.spark.engines import ENGINES as ENGINE_SIGNS
from workbench.speedup.attribution.operator_explanation import is_recording, read_single_log
from workbench.speedup.config import PlanConfig
from workbench.speedup.planning import planning_session
from workbench.speedup.planning.planned_operators import (
    NOT_RUN,
    PlannedOperator,
    RunJoin,
    count_transitions,
    expect_joins,
    list_left_to_spark,
    list_work,
    match_run_joins,
    read_plan,
    read_run_plans,
)
from workbench.speedup.planning.planning_session import PlanningTask
from workbench.speedup.recording import recording_plan, session_process
from workbench.speedup.tables import PLAN_CHECKS, PLANNED_NODES, PLANNED_QUERIES

# Java classes that explain a plan, by engine.
EXPLAINERS = {"comet": "org.apache.comet.ExtendedExplainInfo"}
MAX_NAMED = 5
Say = Callable[[str], None]


@dataclass(frozen=True)
class CandidatePlans:
    """Tables `planned_queries`, `planned_nodes` and `plan_checks`, and what they say.

    `engine`: Name of the candidate's engine. `spark_version`: That of the session that planned.
    """

    engine: str
    spark_version: str
    queries: pl.DataFrame
    nodes: pl.DataFrame
    checks: pl.DataFrame

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the answer is not whole; empty when every query could be planned."""
        failed = self.queries.filter(pl.col("status") == "failed")
        return tuple(
            f"{query} cannot be planned: {error}" for query, error in failed.select("query", "error").iter_rows()
        )

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        planned = self.queries.filter(pl.col("status") == "planned")
        if not planned.height:
            return "No query could be planned."
        left = planned.filter(pl.col("n_accelerated") < pl.col("n_operators"))
        n_operators, n_fast = int(planned["n_operators"].sum()), int(planned["n_accelerated"].sum())
        text = f"{self.engine} runs {n_fast:,} of {n_operators:,} operators in {planned.height} planned queries"
        if not left.height:
            return f"{text}, and leaves none to Spark."
        names = left["query"].head(MAX_NAMED).to_list()
        more = f" and {left.height - MAX_NAMED} more" if left.height > MAX_NAMED else ""
        leave = "1 query leaves" if left.height == 1 else f"{left.height} queries leave"
        return f"{text}; {leave} some to Spark: {', '.join(names)}{more}."

    def list_reasons_of_the_engine(self) -> list[str]:
        """Lines that tell why operators are left to Spark, each reason with its queries; empty without reasons."""
        told = self.nodes.filter(~pl.col("accelerated"), pl.col("reason").is_not_null())
        groups = told.group_by("operator", "reason", maintain_order=True).agg(
            pl.col("query").unique(maintain_order=True)
        )
        lines = [f"  {operator}: {reason} ({', '.join(queries)})" for operator, reason, queries in groups.iter_rows()]
        return ["Why operators are left to Spark, by the engine:", *lines] if lines else []

    @property
    def check_answer(self) -> str | None:
        """How many plans came out as planned; null without a run of the candidate."""
        n = self.checks.height
        if not n:
            return None
        left, joins = (int(self.checks[name].sum()) for name in ("left_equal", "joins_equal"))
        return (
            f"Of {n} queries that also ran on the candidate, {left} ({100 * left / n:.0f} %) leave the expected "
            f"operators to Spark, and {joins} ({100 * joins / n:.0f} %) have the expected joins."
        )


def plan_queries(config: PlanConfig, *, say: Say) -> CandidatePlans:
    """What will the candidate do with each query? Planned with its engine, without running.

    Returns: Operators that the engine runs and that it leaves to Spark, with its own reasons; borders between both;
    joins. Adaptive execution changes joins by the sizes that it meets: with a run of the baseline (`baseline_log`) the
    joins of that run are expected. `check` compares with a run of the candidate.

    It does not show how long anything takes. Sizes of the candidate's own batches may change joins near the broadcast
    threshold; plans of commands, and reasons of engines without an explaining class, are not told.
    """
    run_plans = {
        name: read_log_plans(log) for name, log in (("base", config.baseline_log), ("check", config.check)) if log
    }
    # Plan the queries in a session.
    with tempfile.TemporaryDirectory(prefix="workbench-plan-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "session"
        folder.mkdir()
        record = config.build_record_config(out=folder, engines=[config.engine], sessions=1, passes=1)
        prepared = recording_plan.prepare_recording(record, say=say)
        side = prepared.sides[0]
        session = prepared.build_session_plan(side.label, 1, folder=folder, scratch=Path(scratch) / "local")
        signs = ENGINE_SIGNS.get(side.engine)
        task = PlanningTask(
            **session.model_dump() | {"orders": [list(prepared.suite.queries)]},
            switch=signs.switch or None if signs else None,
            explainer=EXPLAINERS.get(side.engine),
        )
        with terminal.open_status() as status:
            progress = session_process.RecordingProgress(status, len(task.queries), len(task.queries))
            progress.start_session(side.label, 1, "planning")
            ended = session_process.run_session(
                task,
                timeout_s=config.timeout_s,
                on_execution=progress.note_execution,
                local=config.local,
                spark=side.spark,
                module=planning_session,
            )
    if ended.facts is None:
        raise RunFailedError("the planning session failed", found=ended.error)
    rows, version, engine = ended.executions, str(ended.facts["spark_version"]), side.engine
    baseline = {query: match_run_joins(*plans) for query, plans in run_plans.get("base", {}).items()}
    return build_candidate_plans(engine, version, rows, baseline, run_plans.get("check", {}))


def read_log_plans(log: str) -> dict[str, tuple[list[PlannedOperator], list[PlannedOperator]]]:
    """Plans of the queries in one event log; of a recording, the log has to be named."""
    if is_recording(log):
        raise ConfigError("a recording has several logs", found=log, do=f"name one: {Path(log) / 'logs'}/…")
    plans = read_run_plans(read_single_log(log))
    if not plans:
        raise InputError("the log has no query that succeeded", where=log, do="give a log of the same queries")
    return plans


def build_candidate_plans(
    engine: str,
    spark_version: str,
    rows: Iterable[Mapping[str, Any]],
    baseline: Mapping[str, Sequence[RunJoin]],
    check: Mapping[str, tuple[Sequence[PlannedOperator], Sequence[PlannedOperator]]],
) -> CandidatePlans:
    """The tables of planned queries.

    `rows`: Of a planning session, one a query. `baseline`: Joins of the baseline's runs. `check`: Plans of the
    candidate's runs.
    """
    queries, nodes, checks = [], [], []
    for row in rows:
        if row["status"] == "failed":
            blank = dict.fromkeys(PLANNED_QUERIES.schema())
            queries.append(
                blank | {"query": row["query"], "status": "failed", "error": row["error"], "plan_s": row["duration_s"]}
            )
            continue
        operators = read_plan(row["plan"], row["explanation"])
        kinds = expect_joins(operators, baseline.get(row["query"], ()))
        queries.append(_build_query_row(row, operators, kinds, from_log=row["query"] in baseline))
        nodes += [_build_node_row(row["query"], operator, kinds) for operator in list_work(operators)]
        if row["query"] in check:
            # Compare a plan with the last version of a run's plan: kinds of operators left to Spark, and joins by
            # number. A join that is expected under another kind, or not at all, is left to Spark under that kind or not
            # at all.
            query = row["query"]
            final = check[row["query"]][1]
            left = {
                kinds.get(operator.node_id, operator.operator.name) for operator in list_left_to_spark(operators)
            } - {NOT_RUN}
            run_left = {operator.operator.name for operator in list_left_to_spark(final)}
            joins = _format_counts(kind for kind in kinds.values() if kind != NOT_RUN)
            run_joins = _format_counts(operator.operator.name for operator in final if operator.is_join)
            check_row = {
                "query": query,
                "left_equal": left == run_left,
                "joins_equal": joins == run_joins,
                "planned_left": ", ".join(sorted(left)),
                "run_left": ", ".join(sorted(run_left)),
                "planned_joins": joins,
                "run_joins": run_joins,
            }
            checks.append(check_row)
    return CandidatePlans(
        engine, spark_version, PLANNED_QUERIES.frame(queries), PLANNED_NODES.frame(nodes), PLAN_CHECKS.frame(checks)
    )


def _build_query_row(
    row: Mapping[str, Any], operators: Sequence[PlannedOperator], kinds: Mapping[int, str], *, from_log: bool
) -> dict[str, Any]:
    work, left = list_work(operators), list_left_to_spark(operators)
    baseline = read_plan(row["baseline_plan"]) if row["baseline_plan"] else []
    reasons = dict.fromkeys(operator.reason for operator in left if operator.reason)
    return {
        "query": row["query"],
        "status": "planned",
        "error": None,
        "plan_s": row["duration_s"],
        "n_operators": len(work),
        "n_accelerated": len(work) - len(left),
        "accelerated_share": 1 - len(left) / len(work) if work else None,
        "n_transitions": count_transitions(operators),
        "left_to_spark": _format_counts(operator.operator.name for operator in left) or None,
        "reasons": "; ".join(reasons) or None,
        "baseline_joins": _format_counts(operator.operator.name for operator in baseline if operator.is_join) or None,
        "joins": _format_counts(operator.operator.name for operator in work if operator.is_join) or None,
        "run_joins": _format_counts(kind for kind in kinds.values() if kind != NOT_RUN) or None,
        "joins_from": "log" if from_log else "plan",
    }


def _build_node_row(query: str, operator: PlannedOperator, kinds: Mapping[int, str]) -> dict[str, Any]:
    return {
        "query": query,
        "node_id": operator.node_id,
        "parent_ids": list(operator.parent_ids),
        "operator": operator.operator.name,
        "node_name": operator.name.strip(),
        "accelerated": operator.operator.accelerated,
        "reason": operator.reason,
        "run_operator": kinds.get(operator.node_id),
    }


def _format_counts(names: Iterable[str]) -> str:
    """Names with their numbers.

    >>> _format_counts(["Sort", "Filter", "Sort"])
    'Filter, 2 Sort'
    """
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in sorted(Counter(names).items()))


def write_candidate_plans(planned: CandidatePlans, out: Path, config: PlanConfig) -> None:
    """Write the tables into a run folder."""
    run = run_folder.start_run("speedup", folder=out, title="Plan", command="workbench speedup plan")
    run.write_table(PLANNED_QUERIES, planned.queries)
    run.write_table(PLANNED_NODES, planned.nodes)
    run.write_table(PLAN_CHECKS, planned.checks)
    for log in filter(None, [config.baseline_log, config.check]):
        run.add_input(log)
    answer = " ".join(filter(None, [planned.answer, planned.check_answer]))
    run.conclude("invalid" if planned.reasons else "valid", planned.reasons, answer)
