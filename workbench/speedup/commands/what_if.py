"""`workbench speedup what-if`: what one application would take on another shape, or without skew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_block, print_text
from workbench.core.field_options import FieldOption
from workbench.speedup.commands import RunFolder, write_log_run

if TYPE_CHECKING:
    from workbench.speedup.scenarios.estimate import ScenarioResult


@take_options_from(
    "workbench.speedup.config:ScenarioConfig",
    options={"price_per_executor_h": FieldOption("price_per_executor_h", min=0)},
    omit="event_log",
)
def what_if(
    settings: OptionValues,
    event_log: Annotated[str, typer.Argument(help="Event log: a file, a rolling folder or a URL.")],
    out: RunFolder = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay the measured tasks of one application with other executors, cores or partitions, or without skew.

    Without options: half, twice and four times the executors, no skew, no stragglers; always the time that endless
    executors would leave. The driver's time stays as it was. The replay must first give the run's own wall time within
    3 %; exit code 1 when it does not, or when parts of the log are missing.

    Example: workbench speedup what-if sample:tpch_sf0.1 --executors 2 --executors 4
    """
    from workbench.eventlog.reader import read_event_logs
    from workbench.speedup.config import ScenarioConfig
    from workbench.speedup.scenarios.estimate import study_scenarios
    from workbench.speedup.tables import CRITICAL_PATH, SCENARIOS

    config = OptionValues(settings | {"event_log": event_log}, settings.flags).build_model(ScenarioConfig)
    result = study_scenarios(read_event_logs(config.event_log), config)
    if out is not None:
        frames, told = [(SCENARIOS, result.scenarios), (CRITICAL_PATH, result.critical_path)], result.details
        write_log_run(out, "what-if", "What if", config.model_dump(), frames, result, logs="event_log", details=told)
    document: dict[str, object] = {
        "answer": result.answer,
        "details": list(result.details),
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "scenarios": result.scenarios.to_dicts(),
        "critical_path": result.critical_path.to_dicts(),
        "out": out,
    }
    finish_command(lambda: _print_scenarios(result), document, as_json=as_json, is_valid=not result.reasons)


def _print_scenarios(result: ScenarioResult) -> None:
    from workbench.report.display import table
    from workbench.speedup.tables import CRITICAL_PATH, SCENARIOS

    verdict = [f"verdict: {result.verdict}", *(f"  {reason}" for reason in result.reasons)]
    print_text("\n".join([result.answer, *verdict, *result.details]))
    print_block(table(result.scenarios, SCENARIOS, caption="Scenarios, beside the run as it was").text)
    longest = result.find_longest_steps()
    print_block(table(longest, CRITICAL_PATH, caption="What the end waited for: the longest steps", limit=12).text)
