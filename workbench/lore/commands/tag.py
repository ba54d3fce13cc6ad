"""`workbench lore tag`: the plan of a query with its LORE ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.lore.commands import lore_options


def tag(
    source: lore_options.Source = None,
    sql: lore_options.Sql = None,
    view: lore_options.Views = None,
    data: lore_options.Data = None,
    conf: lore_options.Confs = None,
    master: lore_options.Master = "local[*]",
    driver_memory: lore_options.Memory = "4g",
    run: Annotated[
        bool, typer.Option(help="Run the query, so that AQE settles its plan and rows and times are known.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Write the tagged plan, for `lore dump --tagged` to compare with a later run.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a query's plan with [loreId=N] on every operator, its rows and its time.

    Ids are given in post-order over the final plan. The same query on the same data has the same ids as long as AQE
    decides alike; --out keeps the plan, and a dump with --tagged is refused when the plan has changed.

    Example: workbench lore tag query.sql --data tables/ --out tagged.json
    """
    import json

    from workbench.core import files
    from workbench.lore.spark_bridge import replay_session
    from workbench.lore.spark_bridge.query_runs import build_plan_document, tag_plan, tree_table
    from workbench.lore.spark_bridge.query_sources import load_query, report_spark_errors
    from workbench.lore.spark_bridge.setting_reads import refuse_misspelt_keys
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    query = load_query(source, sql, view or [], data)
    settings = {"spark.driver.memory": driver_memory, **lore_options.parse_setting_flags(conf, "--conf")}
    with replay_session.fresh_session(master=master, settings=settings, filtered=False) as spark, report_spark_errors():
        refuse_misspelt_keys(connect_bridge(spark), settings)
        tree = tag_plan(query.to_frame(spark), run=run)
        document, rows, text = build_plan_document(tree), tree_table(tree), tree.render_text()
    if out is not None:
        files.write_text(out, json.dumps(document, indent=1))
    n_dumpable = rows["refused"].null_count()
    finish_command(
        f"{text}\n\n{n_dumpable} operators can be dumped; plan {document['plan_hash'][:12]}",
        {**document, "nodes": rows.to_dicts()},
        as_json=as_json,
        written=[] if out is None else [out],
    )
