"""`workbench speedup compare`: two runs of a query, operator by operator."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.terminal import print_block, print_text
from workbench.speedup.commands import RunFolder

SHOWN_ROWS = 15


def compare(
    baseline: Annotated[str, typer.Argument(help="Event log of the baseline; or a recording: one of each side.")],
    candidate: Annotated[
        str | None, typer.Argument(help="Event log of the candidate; the same log by default.")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="Description of the query; repeat for several; all common by default.")
    ] = None,
    sql_ids: Annotated[
        str | None, typer.Option(metavar="ID,ID", help="SQL executions instead of a query: baseline's, candidate's.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(help="Run of the query, from 0 (cold); by default the last of both.", min=0)
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Print all rows of each table, not the first 15.")] = False,
    out: RunFolder = None,
    as_json: JsonFlag = False,
) -> None:
    """Match the operators of two runs of a query, and print the time that each one costs or saves.

    First the whole with a verdict, what else differs between the logs, and the operators summed over all queries; then
    query by query. It compares one run per side, so differences of a few percent are noise; use generate for factors
    with intervals. Exit code 1 when the logs cannot be compared, because they read different data for example.

    Example: workbench speedup compare sample:tpch-sf1 --query q3
    """
    from workbench.report.display import table
    from workbench.speedup.comparison.run_comparison import choose_logs, compare_logs, write_comparison
    from workbench.speedup.tables import ALIGNED, COMPARABILITY, OPERATOR_SUMS

    logs = choose_logs(baseline, candidate)
    comparison = compare_logs(*logs, queries=query or [], sql_ids=sql_ids, number=run)
    if out is not None:
        write_comparison(comparison, out, logs)
    columns = ["operator", "change", "baseline_name", "candidate_name", "baseline_wall_s", "candidate_wall_s", "ratio"]

    limit = 10_000 if show_all else SHOWN_ROWS

    def print_alignments() -> None:
        print_text(comparison.answer)
        for reason in comparison.reasons:
            print_text(f"why: {reason}")
        if (differences := comparison.comparability.filter(comparison.comparability["severity"] != "ok")).height:
            print_block(table(differences, COMPARABILITY, caption="What else differs").text)
        print_block(table(comparison.sums, OPERATOR_SUMS, caption="Operators over all queries", limit=limit).text)
        for name, pair in comparison.alignments.items():
            ratio = pair.baseline_s / pair.candidate_s if pair.candidate_s else 0.0
            print_text(f"{name}: baseline {pair.baseline_s:,.3f} s, candidate {pair.candidate_s:,.3f} s ({ratio:.2f}x)")
            print_block(table(pair.aligned.select(columns), ALIGNED, caption=name, limit=limit).text)

    document: dict[str, object] = {name: pair.aligned.to_dicts() for name, pair in comparison.alignments.items()}
    document |= {
        "answer": comparison.answer,
        "reasons": list(comparison.reasons),
        "operator_sums": comparison.sums.to_dicts(),
    }
    document |= {"comparability": comparison.comparability.to_dicts()}
    written = [out] if out else []
    finish_command(print_alignments, document, as_json=as_json, is_valid=not comparison.reasons, written=written)
