"""`workbench speedup record`: run a query suite on real Spark engines, with one event log per session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, choose_exit_code
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_text
from workbench.core.field_options import FieldOption
from workbench.speedup.commands import (
    Baseline,
    Candidate,
    FirstRuns,
    Level,
    Method,
    MinRatio,
    Recordings,
    SeedVerbose,
    UseFirstRuns,
)
from workbench.speedup.tables import LEAST_RATIO


@take_options_from(
    "workbench.speedup.config:RecordConfig",
    options={
        "engines": "engine",
        "sides": "side",
        "labels": "label",
        "queries": FieldOption(flags=("--queries", "--suite")),
    },
    units={"s": "S"},
    groups={
        "Sides": "engines spark sides labels conf comet_jar",
        "Queries and tables": "queries only data scale power_run",
        "Sessions": "sessions passes seed master driver_memory shuffle_partitions session_timeout_s",
    },
    defaults="model",
)
def record(
    settings: OptionValues,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without running anything.")] = False,
) -> None:
    """Run a query suite on one or more engines, keep an event log per session, and compare the answers.

    A session is a fresh JVM of one side. Sides take turns in rounds of random order. The first side is the baseline,
    and its answers are the reference. Run the same command again to complete an interrupted recording. Exit code 1
    when a session or a query failed or answers differ; such queries are named and do not count.

    Example: workbench speedup record --engine spark --engine comet --scale 0.1 --out data/runs/pair

    Spark 4.1 and Comet 1.2: workbench speedup record --spark 4.1 --engine spark --engine comet --out data/runs/today

    A Power Run of TPC-DS: workbench speedup record --suite tpcds --power-run --engine spark --engine comet --out power
    """
    from workbench.speedup.config import RecordConfig
    from workbench.speedup.recording import recorder

    config = settings.build_model(RecordConfig)
    if dry_run:
        print_text(recorder.format_plan(config))
        return
    outcome = recorder.record_suite(config, say=lambda text: print_text(text, err=True))
    if config.keep == "facts":
        from workbench.speedup.comparison.comparability import replace_logs_by_facts

        replace_logs_by_facts(outcome.recording)
    print_text(recorder.format_outcome(outcome))
    raise typer.Exit(choose_exit_code(is_valid=not outcome.reasons))


def validate(
    context: typer.Context,
    recordings: Recordings = None,
    cpu_log: Annotated[
        list[str] | None, typer.Option("--cpu_log", "--cpu-log", "--cpu", help="Event log(s) without accelerator.")
    ] = None,
    gpu_log: Annotated[
        list[str] | None, typer.Option("--gpu_log", "--gpu-log", "--gpu", help="Accelerated event log(s).")
    ] = None,
    baseline: Baseline = None,
    candidate: Candidate = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "--out", help="New folder: run folder with the tables; seed method: all its files."),
    ] = None,
    level: Level = 0.9,
    least_ratio: MinRatio = LEAST_RATIO,
    other: Annotated[
        Path | None,
        typer.Option(
            "--on",
            metavar="RECORDING",
            help="Predict the queries of this recording instead: another day, scale, suite.",
        ),
    ] = None,
    first_runs: UseFirstRuns = FirstRuns.auto,
    seed: Annotated[
        bool, typer.Option(help="Also show the seed method's predictions (about 20 s more for ten logs).")
    ] = True,
    method: Annotated[Method, typer.Option(help="How factors and predictions are made.")] = Method.calibrated,
    speedups: Annotated[
        Path | None, typer.Option(help="Seed method: factor file to use; generated from the logs by default.")
    ] = None,
    cpu_profile: Annotated[
        Path | None, typer.Option("--cpu_profile", "--cpu-profile", help="Seed method: profile of the CPU log.")
    ] = None,
    gpu_profile: Annotated[
        Path | None, typer.Option("--gpu_profile", "--gpu-profile", help="Seed method: profile of the GPU log.")
    ] = None,
    jar: Annotated[Path | None, typer.Option(help="Accepted for old command lines; not needed.")] = None,
    verbose: SeedVerbose = False,
    as_json: JsonFlag = False,
) -> None:
    """Predict each query from all the others, and compare the errors with those of simpler predictors.

    The seed method is validated as its script did: on the pair that its factors come from. --speedups, --cpu_profile
    and --gpu_profile imply --method seed; there, exit code 1 when a log or an application could not be used: it is
    named, and the others are.

    Example: workbench speedup validate sample:tpch-sf1

    Carried over: workbench speedup validate sample:tpch-sf1 --on sample:tpcds-sf0.05
    """
    from workbench.core.errors import ConfigError
    from workbench.speedup.commands import methods

    of_seed = "speedups cpu_profile gpu_profile"
    method = methods.infer_method(context, method, next(iter(methods.list_given_flags(context, of_seed)), None))
    if jar is not None:
        print_text("--jar is not needed: no Java runs here", err=True)
    if method is Method.calibrated:
        methods.refuse_unused_flags(
            context, f"{of_seed} verbose", "the calibrated method", "add --method seed, or remove it"
        )
        if other is not None:
            methods.refuse_unused_flags(
                context, "seed", "--on", "remove it: another recording is predicted without the seed method"
            )
        if not 0 < least_ratio < float("inf"):
            raise ConfigError("not a ratio", where="--least-ratio", found=least_ratio, allowed="a number above 0")
        pair = methods.load_pair(recordings or [], cpu_log or [], gpu_log or [], baseline, candidate, first_runs.value)
        if other is not None:
            on = methods.load_pair([other], [], [], baseline, candidate, first_runs.value)
            methods.validate_on_other(pair, on, out=output, level=level, threshold=least_ratio, as_json=as_json)
        methods.validate_calibrated_model(
            pair, out=output, level=level, threshold=least_ratio, seed=seed, as_json=as_json
        )
    else:
        if recordings or not cpu_log or output is None or len(cpu_log) > 1 or len(gpu_log or [gpu_profile]) > 1:
            raise ConfigError(
                "the seed method takes one log per side, and a new folder",
                do="give --cpu_log LOG, --gpu_log LOG or --gpu_profile DIR, --output DIR, and no recording",
            )
        if not gpu_log and gpu_profile is None:
            raise ConfigError("the accelerated side is missing", do="give --gpu_log LOG or --gpu_profile DIR")
        methods.refuse_unused_flags(
            context, "baseline candidate level least_ratio other first_runs seed as_json", "the seed method"
        )
        logs = cpu_log[0], gpu_log[0] if gpu_log else None
        profiles = cpu_profile, gpu_profile
        methods.validate_seed_method(logs, output, speedups=speedups, profiles=profiles, verbose=verbose)
