"""`workbench speedup qualify`: logs and factors in, predictions per application out."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.speedup.commands.generate import Method
from workbench.terminal import say

if TYPE_CHECKING:
    from workbench.speedup.fleet import Filters, Fleet
    from workbench.speedup.model import FactorModel
    from workbench.speedup.qualify import Qualified, Terms


class Backend(StrEnum):
    """Where logs are read."""

    local = "local"
    spark = "spark"


def qualify(
    logs: Annotated[list[str] | None, typer.Argument(help="Event logs, folders of them, globs or URLs.")] = None,
    eventlogs: Annotated[list[str] | None, typer.Option("--eventlogs", help="The same, as an option.")] = None,
    factors: Annotated[
        Path | None,
        typer.Option(
            "--factors",
            "--speedup-factor-file",
            help="Factor model that `generate` wrote; seed method: CPUOperator,Score.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--local_folder", "--local-folder", help="Write the tables (seed: files) below it."),
    ] = None,
    app_name: Annotated[str | None, typer.Option(help="Only applications of this name; * and ? match.")] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Only applications started at or after this day.", formats=["%Y-%m-%d"])
    ] = None,
    newest: Annotated[int | None, typer.Option(help="Only this many, the newest.")] = None,
    min_duration: Annotated[float | None, typer.Option(help="Only applications of at least so many seconds.")] = None,
    set_factor: Annotated[list[str] | None, typer.Option("--set", help="What if: OPERATOR=FACTOR; repeatable.")] = None,
    price_cpu: Annotated[float | None, typer.Option(help="Price of the baseline's cluster per hour.")] = None,
    price_accel: Annotated[float | None, typer.Option(help="Price of the candidate's cluster per hour.")] = None,
    least_ratio: Annotated[float, typer.Option(help="What a recommended application must reach.")] = 1.3,
    backend: Annotated[
        Backend, typer.Option(help="Read the logs here, or inside a Spark application.")
    ] = Backend.local,
    jobs: Annotated[int | None, typer.Option(help="Processes of the local backend; the cores by default.")] = None,
    cache: Annotated[bool, typer.Option(help="Keep what was read of each log, by its sha256.")] = True,
    method: Annotated[Method, typer.Option(help="How predictions are made.")] = Method.calibrated,
    platform: Annotated[str | None, typer.Option(help="Seed method: built-in factors, such as onprem-a100.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Predict what applications would take on the accelerator, most time saved first.

    Logs that cannot be read, copies and accelerated ones are listed with the reason. Exit code 1 when a log was
    unreadable or none could be judged.

    Example: workbench speedup qualify data/samples/eventlogs/tpch_sf0.1.zstd --factors factors.json
    """
    from workbench.errors import ConfigError

    paths = [*(logs or []), *(eventlogs or [])]
    if not paths:
        raise ConfigError("no event log given", do="workbench speedup qualify LOG --factors factors.json")
    if method is Method.seed:
        from workbench.speedup.commands.seed import seed_factors, seed_qualify

        seed_qualify(paths, seed_factors(factors, platform), out)
        return
    if factors is None or platform is not None:
        raise ConfigError(
            "the calibrated method needs a factor model",
            do="workbench speedup generate RECORDING --output factors.json, then --factors factors.json"
            " (built-in tables are for --method seed)",
        )
    from workbench.speedup import model
    from workbench.speedup.fleet import Filters
    from workbench.speedup.qualify import Terms
    from workbench.speedup.what_if import parse_factors

    raise typer.Exit(
        _calibrated(
            paths,
            model.read(factors),
            Filters(app_name, since.date() if since else None, newest, min_duration),
            Terms(least_ratio, price_cpu, price_accel),
            parse_factors(set_factor or []),
            backend=backend,
            jobs=jobs,
            cache=cache,
            out=out,
            as_json=as_json,
        )
    )


def _calibrated(
    paths: list[str],
    model: FactorModel,
    filters: Filters,
    terms: Terms,
    set_by_hand: dict[str, float],
    *,
    backend: Backend,
    jobs: int | None,
    cache: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    from workbench.progress import counter
    from workbench.speedup import qualify as analysis
    from workbench.speedup.fleet import measure_fleet

    model.factors(set_by_hand)  # A wrong name is told before logs are read.
    with counter("logs read") as progress:
        fleet = measure_fleet(
            paths, backend=backend.value, jobs=jobs, filters=filters, use_cache=cache, progress=progress
        )
    result = analysis.qualify(model, fleet.applications, fleet.measured, terms, overrides=set_by_hand)
    if out is not None:
        _write(out, result, set_by_hand)
    _print(result, fleet, as_json=as_json, out=out)
    judged = (result.applications["recommendation"] != analysis.NOT_JUDGED).any()
    return 0 if judged and not (fleet.applications["status"] == "unreadable").any() else 1


def _write(out: Path, result: Qualified, set_by_hand: dict[str, float]) -> None:
    from workbench import runs
    from workbench.speedup import qualify as analysis
    from workbench.speedup.calibrated_tables import PREDICTIONS

    run = runs.start(
        "speedup", folder=out, title="Qualification", config={"set": set_by_hand}, command="workbench speedup qualify"
    )
    run.write_table(analysis.APPLICATIONS, result.applications)
    run.write_table(analysis.OPERATORS_AT_STAKE, result.operators_at_stake)
    run.write_table(PREDICTIONS, result.predictions)
    run.conclude("valid", (), result.answer)


def _print(result: Qualified, fleet: Fleet, *, as_json: bool, out: Path | None) -> None:
    from workbench.display import table
    from workbench.speedup import qualify as analysis

    if as_json:
        import json

        document: dict[str, object] = {"answer": result.answer, "out": str(out) if out else None}
        document |= {"n_read": fleet.n_read, "n_cached": fleet.n_cached, "n_filtered": fleet.n_filtered}
        document |= {"applications": result.applications.to_dicts(), "predictions": result.predictions.to_dicts()}
        document |= {"operators_at_stake": result.operators_at_stake.to_dicts()}
        typer.echo(json.dumps(document, indent=2))
        return
    say(result.answer)
    say(f"{fleet.n_read} log(s) read, {fleet.n_cached} known from before, {fleet.n_filtered} left out by the filters")
    columns = ["app_name", "recommendation", "baseline_s", "predicted_s", "ratio", "ratio_low", "ratio_high", "saved_s"]
    shown = result.applications.select(*columns, "unsupported_share", "reason")
    if result.applications["saved_cost"].drop_nulls().len():
        shown = result.applications.select(*columns, "saved_cost", "unsupported_share", "reason")
    say(table(shown, analysis.APPLICATIONS, caption="Applications, most time saved first", limit=50).text)
    if result.operators_at_stake.height:
        say(table(result.operators_at_stake, analysis.OPERATORS_AT_STAKE, caption="Operators at stake", limit=10).text)
    if out:
        say(f"written: {out}")
