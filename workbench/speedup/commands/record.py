"""`workbench speedup record`: run a query suite on real Spark engines, with one event log per session."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.console.finish import choose_exit_code
from workbench.console.options import FieldOption, OptionValues, take_options_from
from workbench.console.terminal import print_text


@take_options_from(
    "workbench.speedup.config:RecordConfig",
    "out engines sides labels conf queries only data scale power_run sessions passes seed master driver_memory "
    "shuffle_partitions comet_jar scrub keep session_timeout_s fresh",
    {"engines": "engine", "sides": "side", "labels": "label", "queries": FieldOption(flags=("--queries", "--suite"))},
    units={"s": "S"},
    defaults="model",
)
def record(
    settings: OptionValues,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without running anything.")] = False,
) -> None:
    """Run a query suite on one or more engines, keep an event log per session, and compare the answers.

    A session is a fresh JVM of one side. Sides take turns in rounds of random order. The first side is the baseline,
    and its answers are the reference. Run the same command again to complete an interrupted recording. Exit code 1
    when a session or a query failed or answers differ; such queries are named and do not count.

    Example: workbench speedup record --engine spark --engine comet --scale 0.1 --out data/runs/pair

    A Power Run of TPC-DS: workbench speedup record --suite tpcds --power-run --engine spark --engine comet --out power
    """
    from workbench.speedup.config import RecordConfig
    from workbench.speedup.recording import recorder

    config = settings.build_model(RecordConfig)
    if dry_run:
        print_text(recorder.format_plan(config))
        return
    outcome = recorder.record_suite(config, say=lambda text: print_text(text, err=True))
    if config.keep == "facts":
        from workbench.speedup.comparison.session_facts import replace_logs_by_facts

        replace_logs_by_facts(outcome.recording)
    print_text(recorder.format_outcome(outcome))
    raise typer.Exit(choose_exit_code(is_valid=not outcome.reasons))
