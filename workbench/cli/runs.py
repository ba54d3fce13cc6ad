"""`workbench runs`: list, show, compare, export, check and prune runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.console.options import build_group

app = build_group("Runs of notebooks: list, show, compare, copy and delete them.")

Place = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder or URL (s3://…) of the runs; by default data/runs, else your cache."
    ),
]
RUN = "Run id, the start of one, a run folder, its URL, or an area for its newest run."


@app.command("list")
def list_runs(
    out: Place = None,
    area: Annotated[str | None, typer.Option(help="Only runs of this area.")] = None,
    status: Annotated[
        str | None, typer.Option(help="running, succeeded, failed, cancelled, died, or unfinished (of a URL).")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Started then or later: 2026-11-01, or 30d.")
    ] = None,
    verdict: Annotated[str | None, typer.Option(help="valid or invalid.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List runs, newest first."""
    from workbench.cli import run_output

    run_output.print_run_list(out, area=area, status=status, since=since, verdict=verdict, as_json=as_json)


@app.command("show")
def show_run(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    out: Place = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one run: answer, inputs, tables, machine."""
    from workbench.cli import run_output

    run_output.print_run(run_output.find_run(run_id, out), as_json=as_json)


@app.command("diff", epilog="\b\nExample:\n  workbench runs diff 20261101T0900 20261108T0900 --html diff.html")
def diff_runs(
    baseline: Annotated[str, typer.Argument(metavar="A", help="Baseline. " + RUN)],
    candidate: Annotated[str, typer.Argument(metavar="B", help="Candidate. " + RUN)],
    out: Place = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the comparison as an HTML page.")
    ] = None,
    any_area: Annotated[bool, typer.Option("--any", help="Allow runs of different areas.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare two runs: settings, inputs, machine, and tables row by row with intervals."""
    from workbench.cli import run_output

    run_output.print_comparison(baseline, candidate, out, html=html, any_area=any_area, as_json=as_json)


@app.command("history", epilog="\b\nExample:\n  workbench runs history sizing --figure gpus --html history.html")
def show_history(
    area: Annotated[str, typer.Argument(metavar="AREA", help="Area of the runs, as `workbench runs list` has it.")],
    out: Place = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Started then or later: 2026-11-01, or 30d.")
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only figures with TEXT in their name: table.column row; repeatable."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the history as an HTML page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the runs of one notebook over time: figures with intervals, what changed, and what changed with it."""
    from workbench.cli import run_output

    run_output.print_history(area, out, since=since, figures=figure or (), html=html, as_json=as_json)


@app.command("check", epilog="\b\nExample:\n  workbench runs check 20261108T0900 --thresholds limits.yaml")
def check_run(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    thresholds: Annotated[Path, typer.Option(metavar="YAML", help="File of thresholds.")],
    out: Place = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a run against thresholds; exit code 1 when one is broken. Changes nothing."""
    from workbench.cli import run_output

    raise typer.Exit(run_output.check_run(run_id, out, thresholds, as_json=as_json))


@app.command(
    "export",
    epilog="\b\nExamples:\n"
    "  workbench runs export sizing --png --out sizing.png\n"
    "  workbench runs export sizing --markdown --out summary.md\n"
    "  workbench runs export 20261108T0900 --junit --out junit.xml",
)
def export_run(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    png: Annotated[bool, typer.Option("--png", help="A chart as a picture.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="A chart as a drawing.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Answer, verdict and key numbers, for a comment or a job's summary.")
    ] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="All of it with all charts; needs Chromium.")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="Verdict and thresholds as test results.")] = False,
    chart: Annotated[int, typer.Option(metavar="N", help="Which chart of the report, from 1.")] = 1,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="File to write; text goes to stdout without it.")
    ] = None,
    runs: Annotated[
        str | None, typer.Option("--runs", metavar="DIR", help="Folder or URL (s3://…) of the runs; as --out of list.")
    ] = None,
) -> None:
    """Export a run as a picture, Markdown, PDF or JUnit, to where people talk.

    Absolute paths become names of files: nothing tells of the machine but its processor.
    """
    from workbench.cli import run_output

    chosen = {"png": png, "svg": svg, "markdown": markdown, "pdf": pdf, "junit": junit}
    kinds = [kind for kind, is_chosen in chosen.items() if is_chosen]
    run_output.export_run(run_id, runs, kinds, chart=chart, out=out)


@app.command(
    "copy",
    epilog="\b\nExamples:\n"
    "  workbench runs copy 20261108T0900 --to s3://bucket/runs\n"
    "  workbench runs copy s3://bucket/runs/speedup/20261108T090000Z-1a2b3c --to data/runs",
)
def copy_runs(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN...", help=RUN)],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Runs folder, or URL (s3://…), to copy them to.")],
    out: Place = None,
    as_json: JsonFlag = False,
) -> None:
    """Copy runs that have ended to a folder or a URL.

    run.json is written last, so that no half copy reads as a run; the same command completes a copy that was cut.
    """
    from workbench.cli import run_output

    run_output.copy_runs(run_ids, out, to, as_json=as_json)


@app.command("prune", epilog="\b\nExample:\n  workbench runs prune --older-than 30d --status failed,died --yes")
def prune_runs(
    out: Place = None,
    keep: Annotated[int | None, typer.Option(metavar="N", help="Keep the newest N of each area.")] = None,
    older_than: Annotated[str | None, typer.Option(metavar="AGE", help="Only runs started before: 30d, 12h.")] = None,
    status: Annotated[
        str | None, typer.Option(help="Only runs in these states: failed,cancelled,died,unfinished.")
    ] = None,
    area: Annotated[str | None, typer.Option(help="Only runs of this area.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs; the default without --yes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Delete runs in a folder or at a URL; without --yes only list them.

    Never deletes running runs, or folders that may not be run folders. A URL has no locks: runs that may still go on
    there stay, unless --status says unfinished.
    """
    from workbench.cli import run_output

    code = run_output.prune_runs(
        out, keep=keep, older_than=older_than, status=status, area=area, delete=yes and not dry_run, as_json=as_json
    )
    raise typer.Exit(code)
