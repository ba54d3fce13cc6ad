"""`workbench speedup compare`: two runs of a query, operator by operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.terminal import say


def compare(
    baseline: Annotated[str, typer.Argument(help="Event log of the baseline.")],
    candidate: Annotated[
        str | None, typer.Argument(help="Event log of the candidate; the same log by default.")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="Description of the query; repeat for several; all common by default.")
    ] = None,
    sql_ids: Annotated[
        str | None, typer.Option(metavar="ID,ID", help="SQL executions in place of a query: baseline's, candidate's.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(help="Which run of the query, from 0 (cold); by default the last of both.", min=0)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write tables and charts as a run folder here.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Say what became of each operator between two runs of a query, and what that cost or saved.

    One run a side: differences of some percent are noise; factors with intervals come from generate.

    Example: workbench speedup compare spark.zstd comet.zstd --query q3
    """
    import json

    from workbench.display import table
    from workbench.speedup import alignment
    from workbench.speedup.comparing import compared

    found = compared(baseline, candidate or baseline, queries=query or [], sql_ids=sql_ids, number=run)
    if out is not None:
        from workbench.speedup.comparing import write

        write(found, out, [baseline, candidate or baseline])
    if as_json:
        document = {name: one.aligned.to_dicts() for name, one in found.items()}
        typer.echo(json.dumps(document, indent=2))
        return
    columns = ["operator", "change", "baseline_name", "candidate_name", "baseline_wall_s", "candidate_wall_s", "ratio"]
    for name, one in found.items():
        ratio = one.baseline_s / one.candidate_s if one.candidate_s else 0.0
        say(
            f"{name}: {one.baseline_s:,.3f} s on the baseline, {one.candidate_s:,.3f} s on the candidate ({ratio:.2f}x)"
        )
        say(table(one.aligned.select(columns), alignment.ALIGNED, caption=name, limit=200).text)
    if out is not None:
        say(f"written: {out}")
