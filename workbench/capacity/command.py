"""`workbench capacity`: what jobs and users need, from the results of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.commands import group

if TYPE_CHECKING:
    from workbench.capacity.study import Study

FIRST_STEPS = """\
  workbench capacity plan --sizing data/samples/capacity/sizing
  workbench run capacity_plan           the report, from recorded runs of all areas
"""

app = group("Plan GPUs, nodes and cost of Spark jobs and a service from the results of runs.", first_steps=FIRST_STEPS)


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench capacity plan --speedup RUN --sizing RUN -f plan.yaml\n"
    "  workbench capacity plan --sizing data/samples/capacity/sizing --json"
)
def plan(
    speedup: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder of a speedup qualification; left out: no jobs.")
    ] = None,
    sizing: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder of a sizing estimate; left out: no service.")
    ] = None,
    indicators: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder of a recommended stack; left out: no stack.")
    ] = None,
    scaletest: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder of a scale test; left out: the rate is not checked.")
    ] = None,
    f: Annotated[
        Path | None,
        typer.Option("-f", "--plan-file", metavar="YAML", help="Day, nodes, prices: `workbench capacity settings`."),
    ] = None,
    accept_invalid: Annotated[
        bool, typer.Option("--accept-invalid", help="Plan with runs that are not valid, too; so is the plan then.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the tables into this run folder.", show_default="nowhere")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")
    ] = False,
) -> None:
    """How many GPUs and nodes, at what cost, and does the scheduler keep up?

    Runs are named here or in the file (speedup, sizing, indicators, scaletest); here wins. The report with its charts:
    workbench run capacity_plan, with the same names as parameters.

    Exit code 0 with a plan, 1 when it rests on runs that are not valid, 2 when there can be none.
    """
    from workbench.capacity.planfile import read_plan
    from workbench.capacity.study import plan as planned
    from workbench.capacity.study import verdict

    given = {"speedup": speedup, "sizing": sizing, "indicators": indicators, "scaletest": scaletest}
    runs_given = {name: str(path) for name, path in given.items() if path is not None}
    config = read_plan(f, runs_given | ({"accept_invalid": True} if accept_invalid else {}))
    made = planned(config)
    made.check()
    if out is not None:
        _write(made, out)
    _say(made, out, as_json=as_json)
    raise typer.Exit(1 if verdict(made) == "invalid" else 0)


def _write(made: Study, out: Path) -> None:
    """The run folder; made only for a plan that there is."""
    from workbench import runs
    from workbench.capacity.study import keep, verdict

    settings = made.config.model_dump(mode="json")
    run = runs.start(
        "capacity_plan", folder=out, title="Capacity plan", config=settings, command="workbench capacity plan"
    )
    keep(made, run)
    run.conclude(verdict(made), made.reasons, made.answer)


def _say(made: Study, out: Path | None, *, as_json: bool) -> None:
    import json

    from workbench.capacity import telling
    from workbench.terminal import say

    say(json.dumps(telling.document(made, out), indent=1) if as_json else telling.text(made, out))


@app.command()
def settings() -> None:
    """Print a plan file with every setting, its default and what it means."""
    from workbench.capacity.planfile import example
    from workbench.terminal import say

    say(example())
