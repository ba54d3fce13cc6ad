"""`workbench speedup support`: what an accelerator would leave on the CPU, by the plans of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.terminal import print_block, print_text
from workbench.speedup.commands import RunFolder, write_log_run

if TYPE_CHECKING:
    from workbench.speedup.support.cpu_operators import CpuReport


def support(
    event_log: Annotated[str, typer.Argument(help="Event log: a file, a rolling folder or a URL.")],
    engine: Annotated[str, typer.Option(help="rapids, or comet with its version as in comet@1.2.")] = "rapids",
    limit: Annotated[int, typer.Option(help="Rows of each table to print.", min=1, max=10_000)] = 15,
    out: RunFolder = None,
    as_json: JsonFlag = False,
) -> None:
    """Tell what an accelerator would leave on the CPU: operators, functions, code of users, formats, types.

    It reads the plans of a log and tables of what the engine runs; nothing is run, and no engine is needed. Where the
    engine can be had, `workbench speedup plan` asks it itself. Exit code 1 when parts of the log are missing.

    Example: workbench speedup support sample:tpch_sf0.1 --engine comet
    """
    from workbench.eventlog.reader import read_event_logs
    from workbench.speedup.attribution.application_profile import build_profile
    from workbench.speedup.support.cpu_operators import list_cpu_operators
    from workbench.speedup.support.engine_support import load_support
    from workbench.speedup.tables import CPU_OPERATORS, CPU_REASONS

    supported = load_support(engine)
    facts = read_event_logs(event_log)
    result = list_cpu_operators(facts, build_profile(facts), supported)
    if out is not None:
        config = {"event_log": event_log, "engine": supported.name}
        frames = [(CPU_OPERATORS, result.operators), (CPU_REASONS, result.by_reason)]
        write_log_run(out, "support", "Support", config, frames, result, logs="event_log")
    document: dict[str, object] = {
        "answer": result.answer,
        "engine": result.engine,
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "by_reason": result.by_reason.to_dicts(),
        "operators": result.operators.to_dicts(),
        "out": out,
    }
    finish_command(lambda: _print_support(result, limit), document, as_json=as_json, is_valid=not result.reasons)


def _print_support(result: CpuReport, limit: int) -> None:
    from workbench.report.display import table
    from workbench.speedup.tables import CPU_OPERATORS, CPU_REASONS

    print_text("\n".join([result.answer, f"verdict: {result.verdict}", *(f"  {reason}" for reason in result.reasons)]))
    if result.n_left:
        print_block(table(result.by_reason, CPU_REASONS, caption="Reasons, most time first", limit=limit).text)
        shown = result.operators.select("query", "node_id", "operator", "kind", "what", "wall_s")
        print_block(table(shown, CPU_OPERATORS, caption="Operators", limit=limit).text)
