"""`workbench speedup profile`: one event log in, a short account of its time out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.terminal import say


def profile(
    event_log: Annotated[
        str | None, typer.Argument(help="Event log: a file, a rolling folder or a URL.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the tables as a run folder here.")] = None,
    sql_id: Annotated[
        list[int] | None, typer.Option(help="SQL execution to look at; repeat for several; all by default.")
    ] = None,
    top_operators: Annotated[int, typer.Option(help="Operators to print.", min=1, max=100)] = 12,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write a rapids_4_spark_profile folder, as the seed scripts read it.")
    ] = False,
    eventlogs: Annotated[
        list[str] | None, typer.Option("--eventlogs", help="Event logs for --csv; repeat for several.")
    ] = None,
    local_folder: Annotated[
        Path | None, typer.Option("--local_folder", "--local-folder", help="Where --csv writes the profile folder.")
    ] = None,
) -> None:
    """Say what one application spent its time on: queries, stages, operators, skew, failures.

    Exit code 1 when the log is cut or damaged: the figures then hold for what could be read. The same as a report
    with charts: workbench run speedup -p event_log=LOG

    With --csv, --eventlogs and --local_folder it writes the tables that the original seed scripts read, and prints
    their paths only.

    Example: workbench speedup profile data/samples/eventlogs/tpch_sf0.1.zstd
    """
    if csv or eventlogs or local_folder is not None:
        _write_folder([*([event_log] if event_log else []), *(eventlogs or [])], local_folder, csv=csv)
        return
    from workbench import runs
    from workbench.display import table
    from workbench.errors import ConfigError
    from workbench.eventlog.reader import read
    from workbench.eventlog.scrub import scrub
    from workbench.speedup import profile as analysis
    from workbench.speedup import tables
    from workbench.speedup.config import ProfileConfig

    if event_log is None:
        raise ConfigError("no event log given", do="workbench speedup profile LOG")
    config = ProfileConfig(event_log=event_log, sql_ids=sql_id or [], top_operators=top_operators)
    result = analysis.profile(read(config.event_log), sql_ids=config.sql_ids)
    if out is not None:
        # A URL may carry a user's name and password.
        shown = scrub(config.event_log) if "://" in config.event_log else config.event_log
        settings = config.model_dump() | {"event_log": shown}
        run = runs.start("speedup", folder=out, title="Profile", config=settings, command="workbench speedup profile")
        for declared in tables.ALL:
            run.write_table(declared, getattr(result, declared.name))
        run.add_input(shown)
        run.conclude(result.verdict, result.reasons, result.answer)
    if as_json:
        import json

        document = {
            "answer": result.answer,
            "verdict": result.verdict,
            "reasons": list(result.reasons),
            "out": str(out) if out else None,
        }
        document |= {declared.name: getattr(result, declared.name).to_dicts() for declared in tables.ALL}
        typer.echo(json.dumps(document, indent=2))
    else:
        say(f"{result.answer}\nverdict: {result.verdict}" + "".join(f"\n  {reason}" for reason in result.reasons))
        say(table(result.queries, tables.QUERIES, caption="Queries by task time", limit=10).text)
        say(
            table(
                result.operator_times, tables.OPERATOR_TIMES, caption="Operator times", limit=config.top_operators
            ).text
        )
        if result.failure_counts.height:
            say(table(result.failure_counts, tables.FAILURE_COUNTS, caption="Failures").text)
    raise typer.Exit(1 if result.reasons else 0)


def _write_folder(logs: list[str], folder: Path | None, *, csv: bool) -> None:
    from workbench.errors import ConfigError
    from workbench.speedup.commands.seed import seed_profile

    if not csv or not logs or folder is None:
        raise ConfigError(
            "a profile folder needs three options",
            allowed="--csv, --eventlogs and --local_folder together",
            do="workbench speedup profile --csv --eventlogs LOG --local_folder DIR",
        )
    seed_profile(logs, folder)
