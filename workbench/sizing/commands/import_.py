"""`workbench sizing import`: what another load tool measured becomes a sweep that can be sized."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.runs import Run
    from workbench.sizing.importing.sweep import Imported


def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="guidellm's JSON report, aiperf's artifact folder, or the toolkit's calc_runner_output.json.",
        ),
    ],
    gpus: Annotated[int, typer.Option(help="GPUs that served it: no file tells.", min=1, max=100_000)],
    tool: Annotated[str | None, typer.Option(help="guidellm, aiperf or nat; told by the content without it.")] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="The service was a simulator; results say so.")] = (
        False
    ),
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder below which the sweep gets its own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Make a sweep folder of what guidellm, aiperf or the toolkit's calculator measured: keep your load tool.

    Failed requests are failures, not latencies; requests of a warm-up phase and such as were cut when the tool ended
    are left out, and said so. Where a rate was asked for, latency counts from when a request was due.

    Exit code 1 when no level can be sized.

    Example: workbench sizing import artifacts/ --gpus 2
    """
    from workbench.sizing import importing

    found = importing.read(path, tool)
    found.simulated = found.simulated or simulated
    run, summary = _written(found, path, gpus, out)
    if as_json:
        import json

        typer.echo(json.dumps(summary, default=str))
    else:
        _print(found, run, summary)
    raise typer.Exit(0 if summary["verdict"] == "valid" else 1)


def _written(found: Imported, path: Path, gpus: int, out: Path | None) -> tuple[Run, dict[str, Any]]:
    from workbench import runs
    from workbench.sizing.importing.sweep import frames
    from workbench.sizing.points import points
    from workbench.sizing.tables import POINTS, QUANTILES, REQUESTS, STEPS

    requests, steps = frames(found, gpus)
    judged, quantiles = points(requests, steps)
    run = runs.start("sizing", out, title=f"A sweep of {found.tool}", command="import", config={"gpus": gpus})
    run.add_input(path)
    for table, frame in ((REQUESTS, requests), (STEPS, steps), (POINTS, judged), (QUANTILES, quantiles)):
        run.write_table(table, frame)
    usable = judged.filter(judged["verdict"].is_in(["valid", "saturated", "few samples"])).height
    loads = [float(load) for load in judged["load"]]
    unit = {"users": "users", "1/s": "arrivals a second"}[judged["load_unit"][0]]
    span = f"{min(loads):.4g}" if len(loads) == 1 else f"{min(loads):.4g} to {max(loads):.4g}"
    levels = f"{len(loads)} level{'s' if len(loads) > 1 else ''} of {found.tool}, {span} {unit}"
    answer = f"{'simulated: ' if found.simulated else ''}{levels}"
    reasons = [] if usable else ["no level can be sized"]
    run.conclude("invalid" if reasons else "valid", [*reasons, *found.notes], answer)
    return run, {
        "folder": str(run.folder),
        "tool": found.tool,
        "version": found.version,
        "verdict": run.verdict,
        "answer": answer,
        "notes": found.notes,
        "points": judged.to_dicts(),
    }


def _print(found: Imported, run: Run, summary: dict[str, Any]) -> None:
    """The levels with their verdicts, what was left out, where it lies."""
    from workbench.terminal import say

    say(f"{summary['answer']} (version {found.version})")
    for point in summary["points"]:
        unit = "users" if point["load_unit"] == "users" else "/s"
        p95 = _p95(run, point["step"])
        text = f"  {point['load']:.4g} {unit}: {point['n_ok']} of {point['n_kept']} kept answered, {p95}"
        say(f"{text}, {point['verdict']}" + (f": {point['reason']}" if point["reason"] else ""))
    for note in found.notes:
        say(f"note: {note}")
    say(f"\nsweep: {run.folder}")


def _p95(run: Run, step: int) -> str:
    from workbench.sizing.tables import QUANTILES

    for row in run.read_table(QUANTILES).iter_rows(named=True):
        if (row["step"], row["metric"], row["q"]) == (step, "runtime", 0.95):
            return f"p95 {row['value_s']:.3f} s" if row["value_s"] is not None else f"p95 {row['note']}"
    return "no p95"
