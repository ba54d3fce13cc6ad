"""`workbench sizing import`: turns the result of another load tool into a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
        str | None, typer.Option(help="guidellm, aiperf, inference-perf, vllm or nat; detected by default.")
    ] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(metavar="GOAL", help="Goal such as p95<=2 (seconds) or 'ttft p99<=300ms'. Repeatable."),
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Mark the results as simulated.")] = (False),
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Create the sweep's folder below this one.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a sweep from the result of guidellm, aiperf, inference-perf, vllm bench or the toolkit's calculator.

    Failed requests count as failures. Requests of a warm-up phase, and requests that were cut off when the tool ended,
    are left out with a note. With a fixed rate, latency counts from the time a request was due.

    Exit code 1 when no level can be sized.

    Example: workbench sizing import artifacts/ --gpus 2
    """
    from workbench.sizing.config import Goal
    from workbench.sizing.other_tools import sweep_import

    goals = [Goal.read(text) for text in goal or []]
    kept = sweep_import.import_sweep(path, gpus=gpus, tool=tool, goals=goals, simulated=simulated, out=out)
    finish_command(
        lambda: _format_import(kept, has_goals=bool(goals)),
        lambda: _build_document(kept),
        as_json=as_json,
        is_valid=kept.usable,
    )


def _build_document(kept: ImportResult) -> dict[str, Any]:
    return {
        "folder": str(kept.folder),
        "tool": kept.imported.tool,
        "version": kept.imported.version or None,
        "verdict": "valid" if kept.usable else "invalid",
        "answer": kept.answer,
        "notes": kept.imported.notes,
        "points": kept.points.to_dicts(),
        "quantiles": kept.quantiles.to_dicts(),
    }


def _format_import(kept: ImportResult, *, has_goals: bool) -> str:
    """Levels with their verdicts, notes, the folder, the next command."""
    from workbench.sizing.other_tools import sweep_import

    version = kept.imported.version
    lines = [kept.answer + (f" (version {version})" if version else "")]
    for point in kept.points.iter_rows(named=True):
        unit = "users" if point["load_unit"] == "users" else "/s"
        text = f"  {point['load']:.4g} {unit}: {point['n_ok']} of {point['n_kept']} kept answered, "
        text += f"{_format_p95(kept, point['step'])}, {point['verdict']}"
        lines.append(text + (f": {point['reason']}" if point["reason"] else ""))
    lines += [f"note: {note}" for note in kept.imported.notes]
    if not kept.usable:
        lines.append("not usable: " + sweep_import.explain_unusable(kept.points))
    lines += ["", f"sweep: {kept.folder}"]
    units = kept.points["load_unit"].to_list()
    target = "--target-users N" if units.count("users") >= units.count("1/s") else "--target-rate R"
    lines.append(f"next: workbench sizing estimate {kept.folder} {target}" + ("" if has_goals else " --goal 'p95<=S'"))
    return "\n".join(lines)


def _format_p95(kept: ImportResult, step: int) -> str:
    from workbench.sizing.estimation import metrics

    rows = kept.quantiles.filter(step=step, metric=metrics.DEFAULT_METRIC, q=0.95)
    if not rows.height or not rows["n"][0]:
        return "no p95"
    row = rows.row(0, named=True)
    return f"p95 {row['note']}" if row["value_s"] is None else f"p95 {row['value_s']:.3f} s"
