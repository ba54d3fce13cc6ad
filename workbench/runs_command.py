"""`workbench runs`: the runs of notebooks listed, shown, compared, checked and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.commands import group

app = group("The runs of notebooks: list, show, compare, check, delete them.")

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]
Place = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="DIR", help="Where the runs are, a folder or URL (s3://…); data/runs, else your cache."
    ),
]
RUN = "Run id, the start of one, a run folder, or its URL."


@app.command("list")
def list_runs(
    out: Place = None,
    area: Annotated[str | None, typer.Option(help="Runs of this area only.")] = None,
    status: Annotated[
        str | None, typer.Option(help="running, succeeded, failed, cancelled, died, or unfinished (of a URL).")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Begun then or later: 2026-11-01, or 30d.")] = None,
    verdict: Annotated[str | None, typer.Option(help="valid or invalid.")] = None,
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    from workbench import batch

    batch.list_runs(out, area=area, status=status, since=since, verdict=verdict, as_json=as_json)


@app.command("show")
def show_run(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    out: Place = None,
    as_json: Json = False,
) -> None:
    """Show one run: what it answered, from what, on which machine."""
    from workbench import batch

    batch.print_run(batch.find_run(run_id, out), as_json=as_json)


@app.command("diff", epilog="\b\nExample:\n  workbench runs diff 20261101T0900 20261108T0900 --html diff.html")
def diff_runs(
    baseline: Annotated[str, typer.Argument(metavar="A", help="The run to compare with. " + RUN)],
    candidate: Annotated[str, typer.Argument(metavar="B", help="The run that is compared. " + RUN)],
    out: Place = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the comparison as a page, too.")] = None,
    any_area: Annotated[bool, typer.Option("--any", help="Compare runs of different areas all the same.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs: what went in, where they ran, and their tables row by row, with intervals."""
    from workbench import batch

    batch.diff_runs(baseline, candidate, out, html=html, any_area=any_area, as_json=as_json)


@app.command("check", epilog="\b\nExample:\n  workbench runs check 20261108T0900 --thresholds limits.yaml")
def check_run(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    thresholds: Annotated[Path, typer.Option(metavar="YAML", help="Limits that the run must keep.")],
    out: Place = None,
    as_json: Json = False,
) -> None:
    """Check a run against thresholds; ends with 1 when one is broken, and changes nothing."""
    from workbench import batch

    raise typer.Exit(batch.check_run(run_id, out, thresholds, as_json=as_json))


@app.command("prune", epilog="\b\nExample:\n  workbench runs prune --older-than 30d --status failed,died --yes")
def prune_runs(
    out: Place = None,
    keep: Annotated[int | None, typer.Option(metavar="N", help="Keep the newest N of each area.")] = None,
    older_than: Annotated[str | None, typer.Option(metavar="AGE", help="Only those begun before: 30d, 12h.")] = None,
    status: Annotated[str | None, typer.Option(help="Only those that ended so: failed,cancelled,died.")] = None,
    area: Annotated[str | None, typer.Option(help="Only runs of this area.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would go; so it is without --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete.")] = False,
    as_json: Json = False,
) -> None:
    """Delete run folders that are no longer wanted; without --yes it only tells which.

    A run that goes on is never deleted, nor a folder that is not surely a run's.
    """
    from workbench import batch

    code = batch.prune_runs(
        out, keep=keep, older_than=older_than, status=status, area=area, delete=yes and not dry_run, as_json=as_json
    )
    raise typer.Exit(code)
