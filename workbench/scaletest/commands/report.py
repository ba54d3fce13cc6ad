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
    from workbench.scaletest.observation import run_records

    if folder is not None and output_dir is not None:
        raise ConfigError("two input folders", where="DIR, --output-dir", do="give one of them")
    source = folder or output_dir or Path("logs")
    files = write_upstream_report(source, cast("Plot", plot), skip_errors, head, tail, out)
    analysis = analyse_run(source) if (source / run_records.CONDITIONS_FILE).is_file() else None
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


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; the run may have been interrupted.")],
    as_json: JsonFlag = False,
) -> None:
    """Recompute a run's tables from its raw records, and print the result.

    Works for killed runs too: it shows what was recorded until then, and what is missing. For the report with its
    charts: workbench run scaletest -p runs=RUN

    Exit code 0 when the run is valid, 1 when it is not; the reasons are printed.

    Example: workbench scaletest show sample:scaletest/league/00-kai-scheduler
    """
    from workbench.console.finish import finish_command
    from workbench.core.errors import ConfigError
    from workbench.scaletest.analysis import raw_tables, terminal_report, variants
    from workbench.scaletest.analysis.run_analysis import analyse_run
    from workbench.scaletest.observation import run_records

    if (folder / variants.SESSION_FILE).is_file():
        raise ConfigError(
            "the folder holds runs of several variants, not one run",
            where=folder,
            found=[run.folder for run in variants.read_session(folder).runs][:10],
            do=f"show one of them, or: workbench scaletest compare {folder}",
        )
    # Recorded samples and imported runs have tables and no journal.
    if (folder / run_records.JOURNAL).is_file():
        raw_tables.write_raw_tables(folder)
    analysis = analyse_run(folder)
    finish_command(
        lambda: terminal_report.print_run(analysis),
        lambda: terminal_report.format_run_json(analysis),
        as_json=as_json,
        is_valid=not analysis.reasons,
    )


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER…", help="One folder written by `run --scheduler A,B`, or two run folders: A and B."
        ),
    ],
    clock: Annotated[
        str | None,
        typer.Option(help="Clock of the times: client, server, mixed.", show_default="client; mixed for imported runs"),
    ] = None,
    all_steps: Annotated[bool, typer.Option("--all", help="Show every step, not only those that differ.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare two variants step by step: which is faster, by what ratio.

    The unit of replication is the run, because the workloads of one run share its queue. Ratios are taken of each run's
    p50 and p95, in pairs by turn, with 95 % intervals corrected over all steps (Holm). With one run per variant the
    difference is shown without a verdict. A quantile that some run never reached gets no verdict; the reason names the
    variant.

    Exit code 0 when all runs are valid, 1 when one is not; the reasons are printed.

    Example: workbench scaletest compare sample:scaletest/league
    """
    from workbench.console.finish import finish_command
    from workbench.core.errors import ConfigError, InputError
    from workbench.scaletest.analysis import terminal_report, variants

    if clock is not None and clock not in variants.CLOCKS:
        raise ConfigError("unknown clock", where="--clock", found=clock[:40], allowed=variants.CLOCKS)
    if len(runs) > 2:
        raise ConfigError("too many folders to compare", where="FOLDER", found=len(runs), allowed="one or two")
    sides = variants.read_variants(runs[0]) if len(runs) == 1 else variants.combine_variants(runs[:1], runs[1:])
    if len(sides.names) < 2:
        raise ConfigError(
            "only one variant: nothing to compare with",
            where=runs[0],
            found=sides.names[0],
            do="name a second folder, or measure both: workbench scaletest run --scheduler default,kai",
        )
    if not sides.pairs:
        raise InputError(
            "no turn has a run of both variants", where=runs[0], do=f"workbench scaletest run --resume {runs[0]}"
        )
    comparison = sides.comparison(clock)
    finish_command(
        lambda: terminal_report.print_comparison(sides, comparison, all_steps=all_steps),
        lambda: terminal_report.format_comparison_json(sides, comparison),
        as_json=as_json,
        is_valid=not sides.reasons,
    )
