"""`workbench sizing import`: what another load tool measured becomes a sweep that can be sized."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.sizing.importing.folder import Kept


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
    goal: Annotated[
        list[str] | None,
        typer.Option(metavar="GOAL", help="p95<=2 (s), 'ttft p99<=300ms': what estimates aim at. Repeat for several."),
    ] = None,
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
    from workbench.sizing.config import Goal
    from workbench.sizing.importing import folder

    goals = [Goal.read(text) for text in goal or []]
    kept = folder.keep(path, gpus=gpus, tool=tool, goals=goals, simulated=simulated, out=out)
    if as_json:
        _print_json(kept)
    else:
        _print(kept, aims=bool(goals))
    raise typer.Exit(0 if kept.usable else 1)


def _print_json(kept: Kept) -> None:
    import json

    found = {
        "folder": str(kept.folder),
        "tool": kept.imported.tool,
        "version": kept.imported.version or None,
        "verdict": "valid" if kept.usable else "invalid",
        "answer": kept.answer,
        "notes": kept.imported.notes,
        "points": kept.points.to_dicts(),
        "quantiles": kept.quantiles.to_dicts(),
    }
    typer.echo(json.dumps(found))


def _print(kept: Kept, *, aims: bool) -> None:
    """The levels with their verdicts, what was left out, where it lies, what is next."""
    from workbench.terminal import say

    version = kept.imported.version
    say(kept.answer + (f" (version {version})" if version else ""))
    for point in kept.points.iter_rows(named=True):
        unit = "users" if point["load_unit"] == "users" else "/s"
        text = f"  {point['load']:.4g} {unit}: {point['n_ok']} of {point['n_kept']} kept answered, "
        text += f"{_p95(kept, point['step'])}, {point['verdict']}"
        say(text + (f": {point['reason']}" if point["reason"] else ""))
    for note in kept.imported.notes:
        say(f"note: {note}")
    say(f"\nsweep: {kept.folder}")
    target = "--target-users N" if kept.points["load_unit"][0] == "users" else "--target-rate R"
    say(f"next: workbench sizing estimate {kept.folder} {target}" + ("" if aims else " --goal 'p95<=S'"))


def _p95(kept: Kept, step: int) -> str:
    for row in kept.quantiles.iter_rows(named=True):
        if (row["step"], row["metric"], row["q"]) == (step, "runtime", 0.95):
            return f"p95 {row['value_s']:.3f} s" if row["value_s"] is not None else f"p95 {row['note']}"
    return "no p95"
