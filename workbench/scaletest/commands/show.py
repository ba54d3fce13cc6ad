"""`workbench scaletest show`: recompute the tables of a run and print its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; the run may have been interrupted.")],
    as_json: JsonFlag = False,
) -> None:
    """Recompute a run's tables from its raw records, and print the result.

    Works for killed runs too: it shows what was recorded until then, and what is missing. For the report with its
    charts: workbench run scaletest -p runs=RUN

    Exit code 0 when the run is valid, 1 when it is not; the reasons are printed.

    Example: workbench scaletest show data/runs/scaletest/20261122T031500Z-1a2b3c
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
