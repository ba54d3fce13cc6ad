"""`workbench scaletest report`: write times.csv and the plots of Run:ai's scale-test tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag


def report(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="submitted.json and sampled.json, or a run folder.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", metavar="DIR", help="The same folder, by that tool's flag.")
    ] = None,
    plot: Annotated[str, typer.Option(help="general: totals; detailed: every step and its distribution.")] = "general",
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors/--no-skip-errors", help="Leave out the rows that tool leaves out.")
    ] = True,
    head: Annotated[int | None, typer.Option(help="Draw only the first N workloads, by time of submission.")] = None,
    tail: Annotated[int | None, typer.Option(help="Draw only the last N workloads.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Output folder.", show_default="the input's")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write times.csv, with every column under its right heading, and general.png or detailed.png.

    Times are whole seconds, as in those files. It can run repeatedly while a submission is in progress. For a run
    folder it also prints the result, as `show` does. Report with all charts: workbench run scaletest -p runs=RUN

    Exit code 0 for invalid runs too; use `show` to check validity.

    Example: workbench scaletest report logs --plot detailed
    """
    from typing import cast

    from workbench.console.finish import finish_command
    from workbench.console.terminal import print_text
    from workbench.core.errors import ConfigError
    from workbench.scaletest.analysis import terminal_report
    from workbench.scaletest.analysis.run_analysis import analyse_run
    from workbench.scaletest.compat_runai.runai_plots import Plot, write_upstream_report
    from workbench.scaletest.observation import run_conditions

    if folder is not None and output_dir is not None:
        raise ConfigError("two input folders", where="DIR, --output-dir", do="give one of them")
    source = folder or output_dir or Path("logs")
    files = write_upstream_report(source, cast("Plot", plot), skip_errors, head, tail, out)
    analysis = analyse_run(source) if (source / run_conditions.CONDITIONS_FILE).is_file() else None
    document = {
        "picture": files.picture,
        "times": files.times,
        "drawn": files.drawn,
        "skipped": files.skipped,
        "sampled": files.sampled,
    }
    if analysis is not None:
        document |= {"answer": analysis.answer, "reasons": analysis.reasons, "warnings": analysis.warnings}

    def print_report() -> None:
        print_text(f"{files.drawn} of {files.sampled} workloads drawn, {files.skipped} skipped as errors")
        print_text(f"  {files.picture}\n  {files.times}")
        if analysis is not None:
            print_text("")
            terminal_report.print_run(analysis)
            print_text(f"\nall charts: workbench run scaletest -p runs={source}")

    finish_command(print_report, document, as_json=as_json)
