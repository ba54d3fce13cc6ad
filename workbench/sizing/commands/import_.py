"""`workbench sizing import`: turns the result of another load tool into a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command

if TYPE_CHECKING:
    from workbench.sizing.other_tools.sweep_import import ImportResult


def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="guidellm's JSON report, aiperf's artifact folder, inference-perf's report folder, the result of "
            "vllm bench serve, or the toolkit's calc_runner_output.json.",
        ),
    ],
    gpus: Annotated[int, typer.Option(help="GPUs that served it; not recorded in these files.", min=1, max=100_000)],
    tool: Annotated[
        str | None, typer.Option(help="guidellm, aiperf, inference-perf, vllm, genai-perf or nat; detected by default.")
    ] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(metavar="GOAL", help="Goal such as p95<=2 (seconds) or 'ttft p99<=300ms'. Repeatable."),
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Mark the results as simulated.")] = (False),
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Create the sweep's folder below this one.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a sweep from a result of guidellm, aiperf, inference-perf, vllm, genai-perf or the toolkit's calculator.

    Failed requests count as failures. Requests of a warm-up phase, and requests that were cut off when the tool ended,
    are left out with a note. With a fixed rate, latency counts from the time a request was due.

    Exit code 1 when no level can be sized.

    Example: workbench sizing import sample:aiperf/users --gpus 2
    """
    from workbench.sizing.config import Goal
    from workbench.sizing.other_tools import sweep_import

    goals = [Goal.read(text) for text in goal or []]
    result = sweep_import.import_sweep(path, gpus=gpus, tool=tool, goals=goals, simulated=simulated, out=out)
    finish_command(
        lambda: _format_import(result, has_goals=bool(goals)),
        {
            "folder": result.folder,
            "tool": result.imported.tool,
            "version": result.imported.version or None,
            "verdict": "valid" if result.usable else "invalid",
            "answer": result.answer,
            "notes": result.imported.notes,
            "points": result.points.to_dicts(),
            "quantiles": result.quantiles.to_dicts(),
        },
        as_json=as_json,
        is_valid=result.usable,
    )


def _format_import(result: ImportResult, *, has_goals: bool) -> str:
    """Levels with their verdicts, notes, the folder, the next command."""
    from workbench.sizing.estimation import metrics
    from workbench.sizing.other_tools import sweep_import

    version = result.imported.version
    lines = [result.answer + (f" (version {version})" if version else "")]
    for point in result.points.iter_rows(named=True):
        unit = "users" if point["load_unit"] == "users" else "/s"
        p95 = "no p95"
        for row in result.quantiles.filter(step=point["step"], metric=metrics.DEFAULT_METRIC, q=0.95).to_dicts():
            if row["n"]:
                p95 = f"p95 {row['note']}" if row["value_s"] is None else f"p95 {row['value_s']:.3f} s"
        text = f"  {point['load']:.4g} {unit}: {point['n_ok']} of {point['n_kept']} kept answered, "
        text += f"{p95}, {point['verdict']}"
        lines.append(text + (f": {point['reason']}" if point["reason"] else ""))
    lines += [f"note: {note}" for note in result.imported.notes]
    if not result.usable:
        lines.append("not usable: " + sweep_import.explain_unusable(result.points))
    lines += ["", f"sweep: {result.folder}"]
    units = result.points["load_unit"].to_list()
    target = "--target-users N" if units.count("users") >= units.count("1/s") else "--target-rate R"
    lines.append(
        f"next: workbench sizing estimate {result.folder} {target}" + ("" if has_goals else " --goal 'p95<=S'")
    )
    return "\n".join(lines)
