"""`workbench speedup plan`: what an engine will do with queries, without running them."""

from __future__ import annotations

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_block, print_text
from workbench.core.field_options import FieldOption
from workbench.speedup.commands import RunFolder


@take_options_from(
    "workbench.speedup.config:PlanConfig",
    options={"queries": FieldOption(flags=("--queries", "--suite"))},
    units={"s": "S"},
    defaults="model",
)
def plan(settings: OptionValues, out: RunFolder = None, as_json: JsonFlag = False) -> None:
    """Plan queries on an engine without running them: what it leaves to Spark and why, and which joins change.

    Adaptive execution chooses joins by the sizes that it meets. With --baseline-log, a log of the same queries on the
    baseline, the joins of that run are expected. --check compares with a log of a run on the candidate. Exit code 1
    when a query cannot be planned.

    Example: workbench speedup plan --suite tpch --scale 0.01 --engine comet

    With a run: workbench speedup plan --suite tpcds --engine comet@4.1 --baseline-log SPARK_LOG --check COMET_LOG
    """
    from workbench.report.display import table
    from workbench.speedup import tables
    from workbench.speedup.config import PlanConfig
    from workbench.speedup.planning.candidate_plans import plan_queries, write_candidate_plans

    config = settings.build_model(PlanConfig)
    planned = plan_queries(config, say=lambda text: print_text(text, err=True))
    if out is not None:
        write_candidate_plans(planned, out, config)

    def print_plans() -> None:
        print_text(planned.answer)
        for text in filter(None, [planned.check_answer, *planned.reasons]):
            print_text(text)
        columns = [
            "query", "plan_s", "n_operators", "n_accelerated", "n_transitions", "left_to_spark", "joins", "run_joins"
        ]  # fmt: skip
        print_block(table(planned.queries.select(columns), tables.PLANNED_QUERIES, caption="Plans", limit=1000).text)
        for text in planned.list_reasons_of_the_engine():
            print_text(text)
        off = planned.checks.filter(~planned.checks["left_equal"] | ~planned.checks["joins_equal"])
        if off.height:
            print_block(table(off, tables.PLAN_CHECKS, caption="Runs with another plan", limit=100).text)

    document = {
        "answer": planned.answer,
        "check": planned.check_answer,
        "engine": planned.engine,
        "spark_version": planned.spark_version,
        "queries": planned.queries.to_dicts(),
        "checks": planned.checks.to_dicts(),
    }
    written = [out] if out else []
    finish_command(print_plans, document, as_json=as_json, is_valid=not planned.reasons, written=written)
