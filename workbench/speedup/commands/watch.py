"""`workbench speedup watch`: is the last run of a job slower than its week, and why?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_block, print_text
from workbench.speedup.commands import RunFolder, write_log_run

if TYPE_CHECKING:
    from workbench.speedup.nightly.watch import Watch


@take_options_from("workbench.speedup.config:WatchConfig", omit="logs")
def watch(
    settings: OptionValues,
    logs: Annotated[
        str, typer.Argument(help="Folder of event logs, a URL, or a history server: history:http://HOST:PORT.")
    ],
    out: RunFolder = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge the last run of a job by its earlier ones, and book what changed in seconds.

    The earlier runs' own spread is the noise. The difference to a usual run is booked by replaying the last one with
    its executors, retries, stragglers, skew, rows, plans, settings and driver times as usual.

    Exit code 0: as usual, or faster. 1: slower than usual, a query failed, or not known (fewer than five earlier runs,
    or a log that is not whole).

    Example: workbench speedup watch sample:nightly
    """
    from workbench.console.terminal import show_progress_count
    from workbench.speedup.config import WatchConfig
    from workbench.speedup.nightly.watch import watch_job
    from workbench.speedup.tables import NIGHT_CAUSES, NIGHTS

    config = OptionValues(settings | {"logs": logs}, settings.flags).build_model(WatchConfig)
    with show_progress_count("logs read") as progress:
        result = watch_job(config, progress=progress)
    if out is not None:
        frames, told = [(NIGHTS, result.nights), (NIGHT_CAUSES, result.causes)], result.details
        write_log_run(
            out, "watch", "Watch", config.model_dump(), frames, result, logs="logs", details=told, digest=False
        )
    document: dict[str, object] = {
        "answer": result.answer,
        "finding": result.finding,
        "details": list(result.details),
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "nights": result.nights.to_dicts(),
        "causes": result.causes.to_dicts(),
        "out": out,
    }
    finish_command(lambda: _print_watch(result), document, as_json=as_json, is_valid=not result.is_alarm)


def _print_watch(result: Watch) -> None:
    from workbench.report.display import table
    from workbench.speedup.tables import NIGHT_CAUSES, NIGHTS

    verdict = [f"verdict: {result.verdict}", *(f"  {reason}" for reason in result.reasons)]
    print_text("\n".join([result.answer, *verdict, *result.details]))
    if result.causes.height:
        print_block(table(result.causes, NIGHT_CAUSES, caption="What changed, in seconds of wall time").text)
    shown = result.nights.select("started", "role", "wall_s", "task_s", "read_rows", "n_executors", "why_not")
    print_block(table(shown, NIGHTS, caption="Runs, oldest first", limit=40).text)
