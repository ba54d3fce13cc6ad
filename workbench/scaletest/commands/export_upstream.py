"""`workbench scaletest export-upstream`: a run as the older scale-test tool's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.scaletest.upstream.exporting import Exported


def export_upstream(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of a scale test.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go.", show_default="upstream in the run folder")
    ] = None,
    bug_compatible: Annotated[
        bool, typer.Option("--bug-compatible", help="times.csv with that tool's wrong headings and fallbacks.")
    ] = False,
    backend_url_env: Annotated[
        str | None,
        typer.Option(metavar="VARIABLE", help="Environment variable that holds the backend's PostgreSQL URL."),
    ] = None,
    backend_query: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="SELECT name, time …; %(project)s and %(namespace)s are bound."),
    ] = None,
    backend_parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Another parameter of the query. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write submitted.json, sampled.json and times.csv of a run, in the format of Run:ai's scale-test tool.

    Workloads that lack a time that those files must have (a pod group, say) are left out of sampled.json, and counted.

    Exit code 0 when all are in it, 1 when some are not.

    Example: workbench scaletest export-upstream data/runs/scaletest/20260101T100000Z-abc123 --out logs
    """
    from workbench.scaletest.upstream.backend import from_options
    from workbench.scaletest.upstream.exporting import export

    backend = from_options(backend_url_env, backend_query, backend_parameter or [])
    done = export(run, out, bug_compatible=bug_compatible, backend=backend)
    _tell(done, as_json)
    raise typer.Exit(1 if done.view.jobs.height < len(done.view.sent) or not done.view.sent else 0)


def _tell(done: Exported, as_json: bool) -> None:
    import json

    from workbench.terminal import say

    view, paths = done.view, [str(path) for path in done.paths]
    kept = int(view.jobs["kept"].sum())
    if as_json:
        counts = {"submitted": len(view.sent), "sampled": view.jobs.height, "kept": kept}
        say(json.dumps({"files": paths, **counts, "incomplete": view.incomplete}, indent=1))
        return
    say(f"{len(view.sent)} submitted, {view.jobs.height} sampled, {kept} in times.csv")
    for field, missing in view.incomplete.items():
        say(f"  {missing} left out of sampled.json: no {field}")
    for path in paths:
        say(f"  {path}")
