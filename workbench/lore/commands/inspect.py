"""`workbench lore inspect`: contents of a dump, ours or the GPU plugin's, without Spark and without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.lore.commands import lore_options


def inspect(
    path: Annotated[Path, typer.Argument(help="loreId-N, or a folder with such folders in it.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Write the tables as a run folder here.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of each input to inspect; 0 for none.", min=0)] = 1_000_000,
    top: Annotated[int, typer.Option(help="Rows of each table to print.", min=1, max=1000)] = 12,
    as_json: JsonFlag = False,
) -> None:
    """Show the contents of a dump: operator, inputs, partitions and their skew, columns and their values.

    Reads dumps of the RAPIDS accelerator, too. It starts no JVM and unpickles nothing, so it is safe on dumps that you
    do not trust. Exit code 1 when something is damaged or never loaded.

    Example: workbench lore inspect dumps/q/loreId-9
    """
    from workbench.lore.dump_reader import dump_inspection
    from workbench.lore.dump_reader.dump_inspection import inspect_dumps

    inspection = inspect_dumps(path, max_rows=rows)
    if out is not None:
        from workbench.lore import tables
        from workbench.runs import run_folder

        settings = {"path": str(path), "rows": rows}
        run = run_folder.start_run(
            "lore", folder=out, title="Inspection", config=settings, command="workbench lore inspect"
        )
        for declared in tables.INSPECTION_TABLES:
            run.write_table(declared, getattr(inspection, declared.name))
        run.add_input(path, digest=False)
        run.conclude("invalid" if inspection.faults else "valid", inspection.faults, inspection.answer)
    finish_command(
        lambda: dump_inspection.format_inspection(inspection, limit=top),
        lambda: dump_inspection.build_document(inspection) | {"out": str(out) if out else None},
        as_json=as_json,
        is_valid=not inspection.faults,
        written=[] if out is None else [out],
    )


def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder loreId-N.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.zip", help="The zip to write.", show_default="loreId-N.zip")
    ] = None,
    max_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Maximum size of its files, like 512m or 2g.")
    ] = "512m",
    trust: Annotated[
        bool, typer.Option("--trust", help="Bundle a dump that you did not sign; prints its contents first.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put a dump into one zip that `workbench lore replay FILE.zip` opens: plan, inputs, checksums, versions.

    The dump is checked first; the same dump gives the same bytes. A bundle holds the rows of the inputs: hide
    confidential columns with `lore dump --mask`.

    Exit code 2 when the dump is damaged, or larger than --max-bytes.

    Example: workbench lore bundle dumps/q/loreId-9 --out join.zip
    """
    from workbench.console.terminal import print_text
    from workbench.core import files
    from workbench.core.formats import format_bytes
    from workbench.lore.config import parse_size
    from workbench.lore.dumps.bundles import write_bundle

    written = write_bundle(
        folder,
        out,
        max_bytes=parse_size(max_bytes, where="--max-bytes"),
        trusted=trust,
        report=lambda text: print_text(text, err=True),
    )
    sidecar, digest = written.sidecar, files.hash_file(written.path)
    n_files, n_rows = len(sidecar.files), sum(entry.n_rows for entry in sidecar.inputs)
    finish_command(
        f"loreId {sidecar.lore_id}, {sidecar.operator}: {n_files} files, {format_bytes(written.n_bytes)}\n"
        f"{n_rows:,} rows of its inputs: {sidecar.masked or 'original values, nothing is masked'}\n"
        f"sha256 {digest}\n{written.path}",
        {
            "path": str(written.path),
            "sha256": digest,
            "lore_id": sidecar.lore_id,
            "operator": sidecar.operator,
            "n_files": n_files,
            "n_bytes": written.n_bytes,
            "n_rows": n_rows,
            "masked": sidecar.masked,
        },
        as_json=as_json,
    )


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

    Example: workbench lore tag sample:lore/query --data sample:lore/tables --out tagged.json
    """
    import json

    from workbench.core import files
    from workbench.lore.spark_bridge import replay_session
    from workbench.lore.spark_bridge.query_runs import build_plan_document, tag_plan, tree_table
    from workbench.lore.spark_bridge.query_sources import load_query, report_spark_errors
    from workbench.lore.spark_bridge.replay_session import refuse_misspelt_keys
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
