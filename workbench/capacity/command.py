"""`workbench capacity`: GPUs, nodes and cost of jobs and users, from the results of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import build_group

if TYPE_CHECKING:
    from workbench.capacity.study import Study

FIRST_STEPS = """\
  workbench capacity plan --sizing sample:capacity/sizing
  workbench run capacity_plan           the report, from recorded runs of all areas
"""

app = build_group(
    "Plan GPUs, nodes and cost of Spark jobs and a service from the results of runs.", first_steps=FIRST_STEPS
)


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench capacity plan --speedup sample:capacity/speedup --sizing sample:capacity/sizing\n"
    "  workbench capacity plan --sizing sample:capacity/sizing --json"
)
def plan(
    speedup: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder of a speedup qualification; without it, no jobs.")
    ] = None,
    sizing: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder of a sizing estimate; without it, no service.")
    ] = None,
    indicators: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder of a recommended stack; without it, no stack.")
    ] = None,
    scaletest: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run folder of a scale test; without it, the rate is not checked."),
    ] = None,
    f: Annotated[
        Path | None,
        typer.Option("-f", "--plan-file", metavar="YAML", help="Day, nodes, prices: `workbench capacity settings`."),
    ] = None,
    accept_invalid: Annotated[
        bool, typer.Option("--accept-invalid", help="Also plan with runs that are not valid; the plan is then invalid.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the tables into this run folder.", show_default="nowhere")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Plan GPUs, nodes and cost, and check whether the scheduler keeps up.

    Give runs here or in the file (speedup, sizing, indicators, scaletest); options override the file. For a report with
    charts: workbench run capacity_plan, with the same names as parameters.

    Exit code 0 with a valid plan, 1 when it rests on runs that are not valid, 2 when no plan can be made.
    """
    from workbench.capacity import summary
    from workbench.capacity.config import read_plan_file
    from workbench.capacity.study import build_plan

    folders = {"speedup": speedup, "sizing": sizing, "indicators": indicators, "scaletest": scaletest}
    runs_given = {name: str(path) for name, path in folders.items() if path is not None}
    config = read_plan_file(f, runs_given | ({"accept_invalid": True} if accept_invalid else {}))
    study = build_plan(config)
    study.check()
    if out is not None:
        _write_run(study, out)
    finish_command(
        lambda: summary.format_plan(study),
        lambda: summary.build_plan_document(study, out),
        as_json=as_json,
        is_valid=study.verdict == "valid",
        written=[out] if out else [],
    )


def _write_run(study: Study, out: Path) -> None:
    from workbench.capacity.study import write_plan
    from workbench.runs import run_folder

    settings = study.config.model_dump(mode="json")
    run = run_folder.start_run(
        "capacity_plan", folder=out, title="Capacity plan", config=settings, command="workbench capacity plan"
    )
    write_plan(study, run)
    run.conclude(study.verdict, study.reasons, study.answer, details=study.details, conditions=study.conditions)


@app.command()
def settings() -> None:
    """Print a plan file with every setting, its default and its description."""
    from workbench.capacity.config import format_example_plan
    from workbench.console.terminal import print_text

    print_text(format_example_plan(), wrap=False)
