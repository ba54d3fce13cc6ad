"""`workbench speedup qualify`: predictions per application from event logs and factors."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.terminal import print_block, print_text
from workbench.speedup.commands import Method, MinRatio
from workbench.speedup.tables import LEAST_RATIO

if TYPE_CHECKING:
    from workbench.speedup.fleet.fleet_reader import MeasuredFleet
    from workbench.speedup.fleet.qualification import Qualification


class Backend(StrEnum):
    """Place where logs are read."""

    local = "local"
    spark = "spark"


class PriceChoice(StrEnum):
    """What prices are of."""

    cluster = "cluster"
    executor = "executor"


Logs = Annotated[
    list[str] | None,
    typer.Argument(help="Event logs, folders of them, globs or URLs; @FILE: a list of them, one a line."),
]
MoreLogs = Annotated[list[str] | None, typer.Option("--eventlogs", help="The same, as an option.")]
FactorFile = Annotated[
    Path | None,
    typer.Option(
        "--factors", "--speedup-factor-file", help="Factor model that `generate` wrote; seed method: CPUOperator,Score."
    ),
]
PlanFolder = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="DIR",
        help="Run folder of `plan`: queries of these names are predicted with their plan on the candidate.",
    ),
]
SampleFolder = Annotated[
    Path | None,
    typer.Option(
        "--sample",
        metavar="DIR",
        help="Run folder of `sample`: predictions of its queries are corrected.",
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", "--local_folder", "--local-folder", help="Write the tables (seed: files) below it."),
]
AppName = Annotated[
    str | None,
    typer.Option(help="Only applications of this name; * and ? match.", rich_help_panel="Choice of applications"),
]
Since = Annotated[
    datetime | None,
    typer.Option(
        help="Only applications started on or after this day.",
        formats=["%Y-%m-%d"],
        rich_help_panel="Choice of applications",
    ),
]
Newest = Annotated[
    int | None, typer.Option(help="Only the newest applications, this many.", rich_help_panel="Choice of applications")
]
MinDuration = Annotated[
    float | None,
    typer.Option(help="Only applications of at least this many seconds.", rich_help_panel="Choice of applications"),
]
SetFactors = Annotated[list[str] | None, typer.Option("--set", help="What if: OPERATOR=FACTOR; repeatable.")]
BaselinePrice = Annotated[
    float | None, typer.Option(help="Price of the baseline's cluster per hour.", rich_help_panel="Prices")
]
CandidatePrice = Annotated[
    float | None, typer.Option(help="Price of the candidate's cluster per hour.", rich_help_panel="Prices")
]
PriceUnit = Annotated[
    PriceChoice,
    typer.Option(
        help="What the prices are of: the cluster from start to end, or each executor while it is there, "
        "as under dynamic allocation.",
        rich_help_panel="Prices",
    ),
]
Currency = Annotated[str, typer.Option(help="Name of the prices' currency, such as EUR.", rich_help_panel="Prices")]
Why = Annotated[bool, typer.Option("--why", help="Print the reason or remark of each application.")]
PerSql = Annotated[bool, typer.Option("--per-sql", help="Print the prediction of each query.")]
ReadWith = Annotated[
    Backend,
    typer.Option(help="Read the logs on this machine, or inside a Spark application.", rich_help_panel="Reading"),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="With --backend spark: spark://HOST:PORT, yarn, k8s://…, local[N]; else as set.",
        rich_help_panel="Reading",
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="With --backend spark: a Spark setting; repeat.", rich_help_panel="Reading"
    ),
]
SharedResults = Annotated[
    str | None,
    typer.Option(
        "--results",
        metavar="DIR",
        help="With --backend spark: folder or URL that the driver and all "
        "executors reach; an interrupted run continues from it.",
        show_default="below your cache",
        rich_help_panel="Reading",
    ),
]
Processes = Annotated[
    int | None, typer.Option(help="Processes of the local backend; one per core by default.", rich_help_panel="Reading")
]
Cache = Annotated[
    bool, typer.Option(help="Keep the measured times of each log, by its sha256.", rich_help_panel="Reading")
]
MethodChoice = Annotated[Method, typer.Option(help="How predictions are made.", rich_help_panel="Seed method")]
Platform = Annotated[
    str | None, typer.Option(help="Seed method: built-in factors, such as onprem-a100.", rich_help_panel="Seed method")
]


def qualify(
    context: typer.Context,
    logs: Logs = None,
    eventlogs: MoreLogs = None,
    factors: FactorFile = None,
    plan: PlanFolder = None,
    sample: SampleFolder = None,
    out: OutFolder = None,
    app_name: AppName = None,
    since: Since = None,
    newest: Newest = None,
    min_duration: MinDuration = None,
    set_factor: SetFactors = None,
    price_cpu: BaselinePrice = None,
    price_accel: CandidatePrice = None,
    price_of: PriceUnit = PriceChoice.cluster,
    currency: Currency = "",
    least_ratio: MinRatio = LEAST_RATIO,
    backend: ReadWith = Backend.local,
    master: Master = None,
    conf: SparkSettings = None,
    results: SharedResults = None,
    jobs: Processes = None,
    cache: Cache = True,
    method: MethodChoice = Method.calibrated,
    platform: Platform = None,
    why: Why = False,
    per_sql: PerSql = False,
    as_json: JsonFlag = False,
) -> None:
    """Predict the time of applications on the accelerator, most time saved first.

    Unreadable logs and already accelerated applications are listed; --why gives the reasons. Copies and earlier
    attempts are not counted. A CPUOperator,Score file (*.csv) implies --method seed. Exit code 1 when a log has holes
    or was unreadable, or no application could be judged.

    Example: workbench speedup qualify sample:tpch_sf0.1 --factors factors.json
    """
    from workbench.console.terminal import show_progress_count
    from workbench.core.books import BOOKS
    from workbench.core.data_files import read_text_file
    from workbench.core.errors import ConfigError
    from workbench.core.field_options import parse_pairs
    from workbench.runs import run_folder
    from workbench.speedup.calibration.factor_model import load_factor_model
    from workbench.speedup.calibration.prediction import load_plan_counts, load_sampled_errors
    from workbench.speedup.calibration.what_if import parse_factors
    from workbench.speedup.commands import methods
    from workbench.speedup.fleet.fleet_logs import open_default_cache
    from workbench.speedup.fleet.fleet_reader import FleetFilters, measure_fleet
    from workbench.speedup.fleet.qualification import QualificationTerms, qualify_applications
    from workbench.speedup.fleet.spark_fleet import SparkOptions
    from workbench.speedup.tables import APPLICATIONS, OPERATORS_AT_STAKE, PREDICTIONS

    paths: list[str] = []
    for path in [*(logs or []), *(eventlogs or [])]:
        if path.startswith("@"):
            lines = read_text_file(path[1:], noun="list of event logs", error_type=ConfigError).splitlines()
            paths += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        else:
            paths.append(path)
    if not paths:
        raise ConfigError("no event log given", do="workbench speedup qualify LOG --factors factors.json")
    is_seed_file = factors is not None and factors.suffix.lower() == ".csv"
    method = methods.infer_method(context, method, "a CPUOperator,Score file" if is_seed_file else None)
    if method is Method.seed:
        of_calibrated = (
            "plan sample app_name since newest min_duration set_factor price_cpu price_accel price_of currency"
        )
        of_calibrated += " least_ratio backend master conf results jobs cache why per_sql as_json"
        methods.refuse_unused_flags(context, of_calibrated, "the seed method")
        methods.qualify_with_seed_method(paths, methods.load_seed_factors(factors, platform), out)
        return
    if factors is None or platform is not None:
        raise ConfigError(
            "the calibrated method needs a factor model" + (", and no built-in table" if platform else ""),
            where="--platform" if platform else None,
            do="workbench speedup generate RECORDING --output factors.json, then --factors factors.json"
            " (built-in tables are for --method seed)",
        )
    model, overrides = load_factor_model(factors), parse_factors(set_factor or [])
    plans = None if plan is None else load_plan_counts(plan)
    samples = None if sample is None else load_sampled_errors(sample)
    filters = FleetFilters(app_name, since.date() if since else None, newest, min_duration)
    terms = QualificationTerms(least_ratio, price_cpu, price_accel, currency=currency, price_of=price_of.value)
    model.build_factors(overrides)  # Refuses a wrong name before logs are read.
    spark = None
    if backend is Backend.spark:
        spark = SparkOptions(master, parse_pairs(conf or [], "--conf"), results, cache)
        if jobs is not None:
            raise ConfigError("only the local backend reads it", where="--jobs", do="--master local[N], or remove it")
    elif unused := [flag for flag, value in (("--master", master), ("--conf", conf), ("--results", results)) if value]:
        raise ConfigError("only the Spark backend reads it", where=unused[0], do="add --backend spark")
    with show_progress_count("logs read") as progress:
        fleet = measure_fleet(
            paths,
            jobs=jobs,
            filters=filters,
            cache=open_default_cache() if cache else None,
            spark=spark,
            progress=progress,
        )
    result = qualify_applications(
        model, fleet.applications, fleet.measured, terms, overrides=overrides, plans=plans, samples=samples
    )
    if out is not None:
        run = run_folder.start_run(
            "speedup", folder=out, title="Qualification", config={"set": overrides}, command="workbench speedup qualify"
        )
        run.write_table(APPLICATIONS, result.applications)
        run.write_table(OPERATORS_AT_STAKE, result.operators_at_stake)
        run.write_table(PREDICTIONS, result.predictions)
        run.write_table(BOOKS, result.books)
        run.conclude("invalid" if result.reasons else "valid", result.reasons, result.answer, details=result.details)
    frames = ("applications", "predictions", "operators_at_stake", "repeated", "books")
    document: dict[str, object] = {"answer": result.answer, "details": result.details, "out": out}
    document |= {name: getattr(fleet, name) for name in ("n_read", "n_cached", "n_filtered")}
    document |= {name: getattr(result, name).to_dicts() for name in frames}
    finish_command(
        lambda: _print_ranking(result, fleet, why=why, per_sql=per_sql),
        document,
        as_json=as_json,
        is_valid=not result.reasons and not result.damaged,
        written=[out] if out else [],
    )


def _print_ranking(result: Qualification, fleet: MeasuredFleet, *, why: bool, per_sql: bool) -> None:
    import polars as pl

    from workbench.report.display import table
    from workbench.speedup.tables import OPERATORS_AT_STAKE, PREDICTIONS

    print_text("\n".join([result.answer, *result.details]))
    print_text(f"{fleet.n_read} log(s) read, {fleet.n_cached} from the cache, {fleet.n_filtered} filtered out")
    caption = f"Applications{f' in {result.folder_name}' if result.folder_name else ''}, most time saved first"
    print_block(table(*result.build_ranking(), caption=caption, limit=50).text)
    if result.repeated_note:
        print_text(result.repeated_note)
    remarks = result.shorten_logs(result.applications.filter(pl.col("reason").is_not_null()).select("log", "reason"))
    if why:
        print_text("\n".join(f"{log}: {reason}" for log, reason in remarks.iter_rows()))
    elif remarks.height:
        print_text(f"{remarks.height} of {result.applications.height} have a reason or a remark: --why prints them")
    print_text("Where the time of one of them went: workbench speedup profile LOG")
    if per_sql and result.predictions.height:
        columns = ["session", "query", "n_executions", "baseline_s", "predicted_s", "ratio", "ratio_low", "ratio_high"]
        queries = result.shorten_logs(result.predictions.select(*columns, "unsupported_share", "unknown_share"))
        print_block(table(queries, PREDICTIONS, caption="Queries of each application", limit=queries.height).text)
    if result.operators_at_stake.height:
        print_block(table(result.operators_at_stake, OPERATORS_AT_STAKE, caption="Operators at stake", limit=10).text)
