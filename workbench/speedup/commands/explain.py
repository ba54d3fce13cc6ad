"""`workbench speedup explain`: the pieces and metrics behind one operator's time in one query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.terminal import say


def explain(
    query: Annotated[str, typer.Argument(help="Description of the query, such as q1.")],
    operator: Annotated[str, typer.Argument(help="Operator, such as HashAggregate or 'Scan parquet'; or idle.")],
    source: Annotated[str, typer.Option("--log", help="Folder of a recording, or an event log.")],
    side: Annotated[list[str] | None, typer.Option(help="Side of the recording; repeat; by default two.")] = None,
    factors: Annotated[Path | None, typer.Option(help="Factor model (JSON) whose prices split shared times.")] = None,
    limit: Annotated[int, typer.Option(help="Rows of each table to print.", min=1, max=10_000)] = 30,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Print every piece behind an operator's time in a query: stages, metrics, work, prices and weights.

    The parts add up to what factors and reports are made from. Of a recording warm runs count, of a single log all.

    Example: workbench speedup explain q1 HashAggregate --log data/samples/speedup/tpch-sf1
    """
    import json

    from workbench.display import table
    from workbench.speedup import explain as analysis
    from workbench.speedup import model as models
    from workbench.speedup.explain_sources import sessions_of

    sessions, measured = sessions_of(source, side or [])
    result = analysis.explain(
        sessions, measured, query, operator, model=models.read(factors) if factors is not None else None
    )
    if as_json:
        document = {"answer": result.answer, "query": query, "operator": result.term, "factor": result.factor}
        frames = {"sums": result.sums, "parts": result.parts, "metrics": result.metrics}
        typer.echo(json.dumps(document | {name: frame.to_dicts() for name, frame in frames.items()}, indent=2))
        return
    say(result.answer)
    if result.factor is not None:
        say("factor model: " + ", ".join(f"{name} {value}" for name, value in result.factor.items()))
    say(table(result.sums, caption="By session", limit=limit).text)
    say(table(result.parts, analysis.EXPLAINED, caption="Pieces", limit=limit).text)
    say(table(result.metrics, analysis.EXPLAINED_METRICS, caption="Metrics of its nodes", limit=limit).text)
