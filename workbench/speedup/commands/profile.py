"""`workbench speedup profile`: where the time of one application went, from its event log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_block, print_text
from workbench.core.field_options import FieldOption
from workbench.speedup.commands import RunFolder, write_log_run

if TYPE_CHECKING:
    from workbench.speedup.study import ProfileStudy


@take_options_from(
    "workbench.speedup.config:ProfileConfig",
    options={
        "sql_ids": FieldOption("sql_id", help="SQL execution to include; repeatable; all by default."),
        "top_operators": FieldOption(default=12, min=1, max=100, help="Operators to print."),
    },
)
def profile(
    settings: OptionValues,
    event_log: Annotated[
        str | None, typer.Argument(help="Event log: a file, a rolling folder or a URL.", show_default=False)
    ] = None,
    out: RunFolder = None,
    as_json: JsonFlag = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write a rapids_4_spark_profile folder, as the seed scripts read it.")
    ] = False,
    eventlogs: Annotated[
        list[str] | None, typer.Option("--eventlogs", help="Event logs for --csv; repeatable.")
    ] = None,
    local_folder: Annotated[
        Path | None, typer.Option("--local_folder", "--local-folder", help="Where --csv writes the profile folder.")
    ] = None,
) -> None:
    """Show where one application lost time and what to try; then its queries, stages, operators and failures.

    Exit code 1 when the log is cut or damaged: the figures then cover the readable part. For a report with charts:
    workbench run profile -p event_log=LOG

    With --csv, --eventlogs and --local_folder it only writes the tables that the original seed scripts read, and
    prints their paths.

    Example: workbench speedup profile sample:tpch_sf0.1
    """
    from workbench.core.errors import ConfigError
    from workbench.eventlog.reader import read_event_logs
    from workbench.speedup.config import ProfileConfig
    from workbench.speedup.study import study_profile

    if csv or eventlogs or local_folder is not None:
        logs = [*([event_log] if event_log else []), *(eventlogs or [])]
        if not csv or not logs or local_folder is None:
            raise ConfigError(
                "a profile folder needs three options",
                allowed="--csv, --eventlogs and --local_folder together",
                do="workbench speedup profile --csv --eventlogs LOG --local_folder DIR",
            )
        from workbench.speedup.commands.methods import write_seed_profiles

        write_seed_profiles(logs, local_folder)
        return
    if event_log is None:
        raise ConfigError("no event log given", do="workbench speedup profile LOG")
    config = OptionValues(settings | {"event_log": event_log}, settings.flags).build_model(ProfileConfig)
    study = study_profile(read_event_logs(config.event_log), config)
    result = study.profile
    if out is not None:
        frames, told = study.tables(), result.details
        write_log_run(out, "profile", "Profile", config.model_dump(), frames, result, logs="event_log", details=told)
    document: dict[str, object] = {
        "answer": result.answer,
        "details": list(result.details),
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "out": out,
    }
    document |= {declared.name: frame.to_dicts() for declared, frame in study.tables()}
    finish_command(
        lambda: _print_profile(study, config.top_operators), document, as_json=as_json, is_valid=not result.reasons
    )


def _print_profile(study: ProfileStudy, limit: int) -> None:
    from workbench.report.display import table
    from workbench.speedup import tables
    from workbench.speedup.attribution.profile_findings import format_findings

    result = study.profile
    verdict = [f"verdict: {result.verdict}", *(f"  {reason}" for reason in result.reasons)]
    print_text("\n".join([result.answer, *verdict, *result.details]))
    if result.findings.height:
        print_block(format_findings(result.findings))
    if study.advice.height:
        caption = "What to try, and the seconds that it can save at most; they overlap"
        print_block(table(study.list_advice(), tables.ADVICE, caption=caption, limit=limit).text)
    print_block(table(result.wall_parts, tables.WALL_PARTS, caption="Wall time by part").text)
    print_block(table(result.queries, tables.QUERIES, caption="Queries by task time", limit=10).text)
    caption = "Exclusive time by operator: each second once, so the rows add up to the time of the queries"
    print_block(table(result.sum_operators(), tables.EXCLUSIVE_TIMES, caption=caption, limit=limit).text)
    caption = "Stages by task time: exclusive wall time, and skew"
    print_block(table(result.sum_stages(), tables.STAGE_SPANS, caption=caption, limit=10).text)
    caption = "Times that operators report: they nest, as the third column says, so do not add rows"
    print_block(table(result.operator_times, tables.OPERATOR_TIMES, caption=caption, limit=limit).text)
    if result.connect_sessions.height:
        sessions = table(
            result.connect_sessions, tables.CONNECT_SESSIONS, caption="Sessions of Spark Connect", limit=limit
        )
        print_block(sessions.text)
    if result.failure_counts.height:
        print_block(table(result.failure_counts, tables.FAILURE_COUNTS, caption="Failures").text)


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

    Example: workbench speedup explain q1 HashAggregate --log sample:tpch-sf1
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


def export(
    factors: Annotated[Path, typer.Argument(help="Factor model that `generate` wrote.")],
    output: Annotated[
        Path, typer.Option(help="*.csv: CPUOperator,Score for the original tools; *.parquet: all terms.")
    ],
) -> None:
    """Write factors as CSV for the original tools, or all terms as Parquet.

    A scan factor of exactly 1 is written as 1.01, because those tools read 1 as "not supported".

    Example: workbench speedup export factors.json --output factors.csv
    """
    from workbench.core.errors import ConfigError
    from workbench.speedup.calibration.factor_model import export_factor_csv, export_parquet, load_factor_model

    writers = {".csv": export_factor_csv, ".parquet": export_parquet}
    if output.suffix.lower() not in writers:
        raise ConfigError("unknown kind of output", where="--output", found=output.name, allowed=["*.csv", "*.parquet"])
    for note in writers[output.suffix.lower()](load_factor_model(factors), output):
        print_text(f"note: {note}", err=True)
    print_text(f"written: {output}")
