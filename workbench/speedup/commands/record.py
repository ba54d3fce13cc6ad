"""`workbench speedup record`: a query suite on real Sparks, one event log a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.terminal import say


def record(
    out: Annotated[Path, typer.Option(help="Folder of the recording; an unfinished one there is gone on with.")],
    engine: Annotated[
        list[str] | None, typer.Option(help="spark or comet: a side under this name; repeat for a pair.")
    ] = None,
    side: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL[:ENGINE][,KEY=VALUE...]", help="A side with settings of its own; repeat for more."),
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="Name in place of the engine's; one for each engine.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Spark setting of all sides; repeat for several.")
    ] = None,
    queries: Annotated[
        str, typer.Option(help="tpch; FILE.sql, also an NDS power-run stream; FILE.py or a module with QUERIES.")
    ] = "tpch",
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="Parquet tables, each name a view; without it TPC-H is made."),
    ] = None,
    scale: Annotated[float, typer.Option(help="TPC-H scale factor (1 is 350 MB).")] = 1.0,
    sessions: Annotated[int, typer.Option(help="Sessions a side, each a fresh JVM.")] = 5,
    passes: Annotated[int, typer.Option(help="Passes over the queries in a session; the first is cold.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the order of sessions and queries.")] = 0,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    driver_memory: Annotated[str, typer.Option(help="Heap of the driver, such as 4g.")] = "4g",
    shuffle_partitions: Annotated[
        int | None, typer.Option(help="4 on a local master by default, else Spark's own.")
    ] = None,
    comet_jar: Annotated[
        Path | None, typer.Option(help="Jar of Comet; without it Spark's Ivy or mvn brings it into your cache.")
    ] = None,
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Take paths, host and user of this machine out of the logs.")
    ] = False,
    session_timeout: Annotated[float, typer.Option(help="Longest time of a session, in seconds.")] = 7200.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Only into an empty folder; never go on with one.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run; run nothing.")] = False,
) -> None:
    """Run a query suite on one or more engines; keep an event log per session, and compare the answers.

    A session is a fresh JVM of one side. Sides take turns in rounds of random order; the first side is the baseline,
    and its answers are the reference. Run the same command again for what is missing. Exit code 1 when a session or
    a query failed or answers differ: those queries are named, and count nowhere.

    Example: workbench speedup record --engine spark --engine comet --scale 0.1 --out data/runs/pair
    """
    from pydantic import ValidationError

    from workbench.errors import ConfigError
    from workbench.speedup.recording import report
    from workbench.speedup.recording.config import RecordConfig
    from workbench.speedup.recording.recorder import record as run

    try:
        config = RecordConfig(
            out=out,
            engines=engine or [],
            sides=side or [],
            labels=label or [],
            conf=conf or [],
            queries=queries,
            data=data,
            scale=scale,
            sessions=sessions,
            passes=passes,
            seed=seed,
            master=master,
            driver_memory=driver_memory,
            shuffle_partitions=shuffle_partitions,
            comet_jar=comet_jar,
            scrub=scrub,
            session_timeout_s=session_timeout,
            fresh=fresh,
        )
    except ValidationError as error:
        raise ConfigError("options out of range", where="record", found=report.problems(error)) from error
    if dry_run:
        say(report.plan_text(config))
        return
    outcome = run(config, say=lambda text: say(text, err=True))
    say(report.outcome_text(outcome))
    raise typer.Exit(1 if outcome.reasons else 0)
