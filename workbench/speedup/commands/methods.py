"""The work behind generate, validate, qualify and profile: the calibrated method, then the seed method.

Imported when a command runs, so that `--help` does not load the analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from workbench.console.finish import finish_command
from workbench.console.terminal import print_text
from workbench.core.errors import ConfigError, ExitCode
from workbench.core.files import write_text
from workbench.eventlog.log_redaction import remove_secrets
from workbench.report.display import table
from workbench.runs import run_folder
from workbench.speedup import tables
from workbench.speedup.attribution.operator_explanation import is_recording
from workbench.speedup.calibration.factor_model import export_factor_csv
from workbench.speedup.calibration.factors import RECORDING_MARK
from workbench.speedup.calibration.pair_calibration import (
    CALIBRATED,
    CrossValidation,
    calibrate_with_origin,
    cross_validate,
)
from workbench.speedup.calibration.transfer import Transfer, try_on_other_recording
from workbench.speedup.comparison import pair as pairs
from workbench.speedup.compat_rapids_tools import seed_factors as factor_files
from workbench.speedup.compat_rapids_tools.accuracy import (
    compare_estimates,
    estimate_left_out_ratios,
    format_validation_report,
)
from workbench.speedup.compat_rapids_tools.jvm_semantics import truncate_decimals
from workbench.speedup.compat_rapids_tools.profile_folder import (
    is_profile_folder,
    read_profile_folder,
    write_profile_folder,
)
from workbench.speedup.compat_rapids_tools.profile_tables import build_seed_application, check_application_side
from workbench.speedup.compat_rapids_tools.qualification_output import estimate_applications, write_qualification
from workbench.speedup.compat_rapids_tools.seed_log import read_seed_logs
from workbench.speedup.rapids_facts import get_operator_scores, list_platforms

if TYPE_CHECKING:
    import polars as pl

    from workbench.core.tables import Table
    from workbench.speedup.comparison.pair import Pair
    from workbench.speedup.compat_rapids_tools.profile_tables import SeedApplication

Frames = Sequence[tuple["Table", "pl.DataFrame"]]
GUIDE = "known faults of the seed method: docs/guide/speedup-seed-method.md"


def load_pair(
    recordings: Sequence[Path],
    baseline_logs: Sequence[str],
    candidate_logs: Sequence[str],
    baseline: str | None,
    candidate: str | None,
    first_runs: pairs.FirstRuns,
) -> Pair:
    """The pair that the options name: recordings, or logs of both sides."""
    if recordings and (baseline_logs or candidate_logs):
        raise ConfigError("a recording and logs", do="give the folder of a recording, or --cpu and --gpu, not both")
    if recordings:
        names = [folder.name for folder in recordings]
        if len(set(names)) < len(names):
            names = [str(folder) for folder in recordings]
        if len(set(names)) < len(names):
            raise ConfigError("a recording is named twice", found=names)
        loaded = [_load_recorded_pair(folder, baseline, candidate, first_runs) for folder in recordings]
        return pairs.join_pairs(dict(zip(names, loaded, strict=True)))
    if not baseline_logs or not candidate_logs:
        raise ConfigError(
            "nothing to compare",
            do="give the folder of a recording (workbench speedup record makes one), or logs: --cpu LOG --gpu LOG",
        )
    labels = (baseline or "baseline", candidate or "candidate") if baseline or candidate else None
    return pairs.load_pair_from_logs(baseline_logs, candidate_logs, labels, first_runs=first_runs)


def _load_recorded_pair(folder: Path, baseline: str | None, candidate: str | None, first_runs: pairs.FirstRuns) -> Pair:
    if is_recording(str(folder)) or not folder.is_dir() or baseline or candidate:
        return pairs.load_recorded_pair(folder, baseline, candidate, first_runs=first_runs)
    return pairs.load_pair_from_folder(folder, first_runs=first_runs)


def generate_calibrated_model(pair: Pair, output: Path, *, out: Path | None, level: float, as_json: bool) -> NoReturn:
    """Write the factor model (or the original tools' CSV), and print the result."""
    result = calibrate_with_origin(pair, level)
    notes: list[str] = []
    if output.suffix.lower() == ".csv":
        notes += export_factor_csv(result.model, output)
    else:
        result.model.write(output)
    frames = (
        (tables.FACTORS, result.factors),
        (tables.PAIRS, result.pairs),
        (tables.COMPARABILITY, pair.comparability),
        (tables.EXECUTIONS, pair.measured.executions),
    )
    if out is not None:
        _write_run(out, "generate", pair, result.answer, {"output": str(output), "level": level}, frames)
    columns = ["operator", "factor", "factor_low", "factor_high", "verdict", "quality", "baseline_share", "n_queries"]
    factors = table(result.factors.select(columns), tables.FACTORS, caption="Factors, most time first", limit=40)
    if result.prediction_note:
        notes = [*notes, result.prediction_note]
    texts = [result.answer, *_list_pair_notes(pair), factors.text, *(f"note: {note}" for note in notes)]
    finish_command(
        "\n".join(texts),
        _build_document(result.answer, pair, frames[:2], output=str(output)),
        as_json=as_json,
        is_valid=not pair.reasons,
        written=[", ".join(map(str, filter(None, (output, out))))],
    )


def estimate_seed_ratios(pair: Pair, queries: Sequence[str]) -> dict[str, float] | None:
    """The seed method's estimates of left-out queries, from logs of plain Spark and an accelerator; otherwise null.

    Null for joined recordings, whose queries are not named as in the logs.
    """
    if any(RECORDING_MARK in query for query in queries):
        return None
    if pair.engines[0] != "spark" or pair.engines[1] == "spark" or not all(pair.logs):
        return None
    return estimate_left_out_ratios(*pair.logs, queries, first_runs=pair.first_runs)


def validate_calibrated_model(
    pair: Pair, *, out: Path | None, level: float, threshold: float, seed: bool, as_json: bool
) -> NoReturn:
    """Predict each query from the others, and print how far off that is."""
    result = calibrate_with_origin(pair, level)
    ratios = estimate_seed_ratios(pair, result.queries) if seed else None
    validation = cross_validate(result, seed_ratios=ratios, level=level, threshold=threshold)
    _finish_validation(pair, result.answer, validation, out, level, as_json=as_json)


def validate_on_other(
    pair: Pair, other: Pair, *, out: Path | None, level: float, threshold: float, as_json: bool
) -> NoReturn:
    """Predict the queries of another recording, and print how far off that is."""
    calibrated, measured = calibrate_with_origin(pair, level), calibrate_with_origin(other, level)
    transfer = try_on_other_recording(calibrated, other, measured, level=level, threshold=threshold)
    _finish_validation(pair, measured.answer, transfer, out, level, as_json=as_json)


def _finish_validation(
    pair: Pair,
    pair_answer: str,
    validation: CrossValidation | Transfer,
    out: Path | None,
    level: float,
    *,
    as_json: bool,
) -> NoReturn:
    """Write and print a validation. `pair_answer`: The ratio of the pair whose queries are predicted."""
    frames = ((tables.VALIDATION, validation.validation), (tables.SCORES, validation.scores))
    if out is not None:
        _write_run(out, "validate", pair, validation.answer, {"level": level}, frames)
    recommending = ["threshold", "n_reached", "n_recommended", "precision", "recall", "mean_interval_score"]
    intervals = ["mean_low", "mean_high", "mean_over_constant_low", "mean_over_constant_high"]
    scores = validation.scores.drop(*intervals, *recommending)
    recommended = validation.scores.select("predictor", *recommending)
    predictions = validation.validation.filter(validation.validation["predictor"] == CALIBRATED)
    predictions = predictions.drop("predictor", "absolute_error_share")
    texts = [
        pair_answer,
        validation.answer,
        *_list_pair_notes(pair),
        table(scores, tables.SCORES, caption="Predictors over left-out queries").text,
        table(recommended, tables.SCORES, caption="Recommendations of left-out queries, and intervals").text,
        table(predictions, tables.VALIDATION, caption="Each query, predicted without it", limit=100).text,
    ]
    document = _build_document(validation.answer, pair, frames)
    finish_command("\n".join(texts), document, as_json=as_json, is_valid=not pair.reasons)


def _list_pair_notes(pair: Pair) -> list[str]:
    return [f"invalid: {reason}" for reason in pair.reasons] + [f"warning: {warning}" for warning in pair.warnings]


def _write_run(out: Path, command: str, pair: Pair, answer: str, config: dict[str, object], frames: Frames) -> None:
    title = {"generate": "Factors", "validate": "Validation"}[command]
    run = run_folder.start_run(
        "speedup", folder=out, title=title, config=config, command=f"workbench speedup {command}"
    )
    for declared, frame in frames:
        run.write_table(declared, frame)
    run.conclude("invalid" if pair.reasons else "valid", pair.reasons, answer)


def _build_document(answer: str, pair: Pair, frames: Frames, **more: object) -> dict[str, object]:
    """Build the command's JSON document: the answer, its validity and the rows of each table by name."""
    return {
        "answer": answer,
        "verdict": "invalid" if pair.reasons else "valid",
        "reasons": list(pair.reasons),
        "warnings": list(pair.warnings),
        **more,
        **{declared.name: frame.to_dicts() for declared, frame in frames},
    }


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in dict.fromkeys(warnings):
        print_text(f"warning: {warning}", err=True)


def _load_seed_applications(path: str, *, accelerated: bool) -> list[SeedApplication]:
    """Load the applications of a side from profiles or event logs; refuse those of the other kind of engine."""
    if is_profile_folder(path):
        applications = read_profile_folder(path, accelerated=accelerated)
    else:
        logs = read_seed_logs(path)
        _print_warnings([f"{log.where}: {warning}" for log in logs for warning in log.warnings])
        applications = [build_seed_application(log) for log in logs]
    check_application_side(applications, accelerated=accelerated)
    return applications


def generate_seed_factors(cpu: str, gpu: str, output: Path, *, verbose: bool) -> None:
    """Write the factor file of the original generator."""
    result = factor_files.generate_factors(
        _load_seed_applications(cpu, accelerated=False), _load_seed_applications(gpu, accelerated=True)
    )
    write_text(output, result.format_csv())
    _print_warnings(result.warnings)
    if verbose:
        print_text(result.format_details().rstrip("\n"))
    print_text(f"written: {output} ({len(result.get_factors())} operators; {GUIDE})", err=True)


def write_seed_profiles(eventlogs: Sequence[str], folder: Path) -> None:
    """Write a profile folder as the original profiler does."""
    for path in write_profile_folder(eventlogs, folder):
        print_text(f"written: {path}")


def load_seed_factors(factors: Path | None, platform: str | None) -> dict[str, float]:
    """Factors of a file or of a built-in table."""
    if (factors is None) == (platform is None):
        raise ConfigError("give either --factors or --platform", allowed=["--factors FILE", *list_platforms()])
    if factors is None:
        return get_operator_scores(str(platform))
    unused: list[str] = []
    factor_table = factor_files.read_factor_file(factors, unused=unused)
    if unused:
        print_text(f"{factors}: columns that are not used: {', '.join(unused)[:500]}", err=True)
    return factor_table


def qualify_with_seed_method(logs: Sequence[str], factors: dict[str, float], folder: Path | None) -> None:
    """Print the estimates of the original qualification tool, and write its files; exit code 1 with unusable logs."""
    unusable: dict[str, str] = {}
    estimates = estimate_applications(logs, factors, unusable=unusable)
    for app in estimates:
        total = app.estimate
        _print_warnings([f"{app.log.app_id}: {warning}" for warning in app.warnings])
        print_text(
            f"{app.log.app_name} ({app.log.app_id}): {total.recommendation}, {truncate_decimals(total.speedup_ratio)}x:"
            f" {total.duration_ms} ms now, {truncate_decimals(total.estimated_ms)} ms estimated,"
            f" task factor {truncate_decimals(app.factor)}"
        )
    if folder is not None:
        for path in write_qualification(estimates, folder, unusable=unusable):
            print_text(f"written: {path}")
    for log, reason in unusable.items():
        print_text(f"not estimated: {remove_secrets(log)}: {reason}")
    if unusable:
        raise typer.Exit(ExitCode.INVALID)


def validate_seed_method(
    logs: tuple[str, str],
    output: Path,
    *,
    speedups: Path | None,
    profiles: tuple[Path | None, Path | None],
    jar: Path | None,
    verbose: bool,
) -> None:
    """Generate, qualify and compare with measured times, as the original validation does."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        # The original deletes it.
        raise ConfigError("the output folder is not empty", where=output, do="give a new folder")
    if jar is not None:
        print_text("--jar is not needed: no Java runs here", err=True)
    cpu_log, gpu_log = logs
    cpu_profile, gpu_profile = profiles
    print_text(f"Output folder = {output}\nCPU event log = {cpu_log}\nGPU event log = {gpu_log}")
    if gpu_profile is None:
        write_profile_folder([gpu_log], output / "gpu_profile")
    measured = _load_seed_applications(str(gpu_profile or output / "gpu_profile"), accelerated=True)
    if speedups is None:
        if cpu_profile is None:
            write_profile_folder([cpu_log], output / "cpu_profile")
        speedups = output / "generatedScores.csv"
        generate_seed_factors(
            str(cpu_profile or output / "cpu_profile"),
            str(gpu_profile or output / "gpu_profile"),
            speedups,
            verbose=verbose,
        )
    estimates = estimate_applications([cpu_log], factor_files.read_factor_file(speedups))
    _print_warnings([warning for app in estimates for warning in app.warnings])
    write_qualification(estimates, output / "cpu")
    print_text(format_validation_report(compare_estimates(estimates, measured)).rstrip("\n"))
