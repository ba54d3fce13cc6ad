"""`workbench speedup explain`: the pieces and metrics behind one operator's time in one query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command


def explain(
    query: Annotated[str, typer.Argument(help="Description of the query, such as q1.")],
    operator: Annotated[str, typer.Argument(help="Operator, such as HashAggregate or 'Scan parquet'; or idle.")],
    source: Annotated[str, typer.Option("--log", help="Folder of a recording, or an event log.")],
    side: Annotated[
        list[str] | None, typer.Option(help="Side of the recording; repeatable; the first two by default.")
    ] = None,
    factors: Annotated[Path | None, typer.Option(help="Factor model (JSON) whose prices split shared times.")] = None,
    limit: Annotated[int, typer.Option(help="Rows of each table to print.", min=1, max=10_000)] = 30,
    as_json: JsonFlag = False,
) -> None:
    """Print every piece behind an operator's time in a query: stages, metrics, work, prices and weights.

    Factors and reports are made from these pieces. In a recording, warm runs count; in a single log, all runs.

    Example: workbench speedup explain q1 HashAggregate --log data/samples/speedup/tpch-sf1
    """
    from workbench.report.display import table
    from workbench.speedup.attribution.operator_explanation import explain_operator, read_sessions
    from workbench.speedup.calibration.factor_model import load_factor_model
    from workbench.speedup.tables import EXPLAINED, EXPLAINED_METRICS

    sessions, measured = read_sessions(source, side or [])
    model = load_factor_model(factors) if factors is not None else None
    result = explain_operator(sessions, measured, query, operator, model=model)
    document: dict[str, object] = {
        "answer": result.answer,
        "query": query,
        "operator": result.term,
        "factor": result.factor,
        "sums": result.sums.to_dicts(),
        "parts": result.parts.to_dicts(),
        "metrics": result.metrics.to_dicts(),
    }
    texts = [result.answer]
    if result.factor is not None:
        texts.append("factor model: " + ", ".join(f"{name} {value}" for name, value in result.factor.items()))
    texts.append(table(result.sums, caption="By session", limit=limit).text)
    texts.append(table(result.parts, EXPLAINED, caption="Pieces", limit=limit).text)
    texts.append(table(result.metrics, EXPLAINED_METRICS, caption="Metrics of its nodes", limit=limit).text)
    finish_command("\n".join(texts), document, as_json=as_json)
