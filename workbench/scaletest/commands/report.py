"""`workbench scaletest report`: times.csv and the plots of the older scale-test tool; of a run, what it says, too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="submitted.json and sampled.json, or a run folder.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", metavar="DIR", help="The same, by the old flag.")
    ] = None,
    plot: Annotated[str, typer.Option(help="general: totals; detailed: each step, and how it is spread.")] = "general",
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors/--no-skip-errors", help="Leave out what the old tool leaves out.")
    ] = True,
    head: Annotated[int | None, typer.Option(help="Draw the first so many, by time of submission.")] = None,
    tail: Annotated[int | None, typer.Option(help="Draw the last so many.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where they go.", show_default="beside them")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write times.csv, every column under its right heading, and general.png or detailed.png.

    Times are whole seconds here, as in those files. Can be run again and again while a submission is running. Of a run
    folder it also says the answer, the steps in milliseconds and what held the run up, as `show` does; the report with
    all charts: workbench run scaletest -p runs=RUN

    Exit code 0 also for a run that is invalid: `show` is what judges.

    Example: workbench scaletest report logs --plot detailed
    """
    import json
    from typing import cast

    from workbench.errors import ConfigError
    from workbench.scaletest import facts, telling
    from workbench.scaletest.analysing import analyse
    from workbench.scaletest.upstream.plots import Plot
    from workbench.scaletest.upstream.report import upstream_report
    from workbench.terminal import say

    if folder is not None and output_dir is not None:
        raise ConfigError("one folder or the other", where="DIR, --output-dir", do="give one")
    place = folder or output_dir or Path("logs")
    found = upstream_report(place, cast("Plot", plot), skip_errors, head, tail, out)
    analysis = analyse(place) if (place / facts.FILE).is_file() else None
    if as_json:
        counts = {"drawn": found.drawn, "skipped": found.skipped, "sampled": found.sampled}
        told = {"picture": str(found.picture), "times": str(found.times), **counts}
        if analysis is not None:
            told |= {"answer": analysis.answer, "reasons": list(analysis.reasons), "warnings": list(analysis.warnings)}
        say(json.dumps(told, indent=1))
        return
    say(f"{found.drawn} of {found.sampled} workloads drawn, {found.skipped} skipped as errors")
    say(f"  {found.picture}\n  {found.times}")
    if analysis is not None:
        say("")
        telling.say_run(analysis)
        say(f"\nall charts: workbench run scaletest -p runs={place}")
