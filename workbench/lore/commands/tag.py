"""`workbench lore tag`: the plan of a query with its LORE ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.lore.commands import options


def tag(
    source: options.Source = None,
    sql: options.Sql = None,
    view: options.Views = None,
    data: options.Data = None,
    conf: options.Confs = None,
    master: options.Master = "local[*]",
    driver_memory: options.Memory = "4g",
    run: Annotated[
        bool, typer.Option(help="Run the query, so that AQE settles its plan and rows and times are known.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Write the tagged plan, which `lore dump --tagged` holds a later run against.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show a query's plan with [loreId=N] on every operator, its rows and its time.

    Ids are given in post-order over the final plan. The same query on the same data has the same ids as long as AQE
    decides alike; --out keeps the plan, and a dump with --tagged refuses when it has changed.

    Example: workbench lore tag query.sql --data tables/ --out tagged.json
    """
    import json

    from workbench.lore import session
    from workbench.lore.queries import failures_told, query
    from workbench.lore.running import as_table, document, tagged
    from workbench.terminal import say

    asked = query(source, sql, view or [], data)
    settings = {"spark.driver.memory": driver_memory, **options.pairs(conf, where="--conf")}
    with session.fresh(master=master, settings=settings, filtered=False) as spark, failures_told():
        tree = tagged(asked.frame(spark), run=run)
        kept, rows, text = document(tree), as_table(tree), tree.render()
    with failures_told():
        options.written(out, json.dumps(kept, indent=1))
    if as_json:
        typer.echo(json.dumps({**kept, "nodes": rows.to_dicts()}, indent=1))
        return
    say(text)
    say(f"\n{rows.filter(rows['refused'].is_null()).height} operators can be dumped; plan {kept['plan_hash'][:12]}")
    if out is not None:
        say(f"kept in {out}")
