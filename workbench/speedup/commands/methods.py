"""The work behind generate, validate, qualify and profile: the calibrated method, then the seed method.

Imported when a command runs, so that `--help` does not load the analysis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from workbench.console.finish import finish_command
from workbench.console.terminal import print_text
from workbench.core.books import BOOKS
from workbench.core.errors import ConfigError, ExitCode, InputError
from workbench.core.files import write_text
from workbench.eventlog.log_redaction import remove_secrets
from workbench.report.display import table
from workbench.runs import run_folder
from workbench.speedup import tables
from workbench.speedup.attribution.operator_explanation import is_recording
from workbench.speedup.calibration.factor_model import export_factor_csv
from workbench.speedup.calibration.pair_calibration import (
    CALIBRATED,
    MIN_QUERIES,
    CrossValidation,
    calibrate_with_origin,
    cross_validate,
)
from workbench.speedup.calibration.transfer import Transfer, try_on_other_recording
from workbench.speedup.commands import Method
from workbench.speedup.comparison import pair as pairs
from workbench.speedup.compat_rapids_tools import seed_factors as factor_files
from workbench.speedup.compat_rapids_tools.accuracy import (
    compare_estimates,
    estimate_seed_ratios,
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
from workbench.speedup.compat_rapids_tools.seed_log import explain_error, keep_usable, read_seed_logs
from workbench.speedup.rapids_facts import get_operator_scores, list_platforms

if TYPE_CHECKING:
    import polars as pl

    from workbench.core.tables import Table
    from workbench.speedup.comparison.pair import Pair
    from workbench.speedup.compat_rapids_tools.profile_tables import SeedApplication

Frames = Sequence[tuple["Table", "pl.DataFrame"]]
GUIDE = "known faults of the seed method: docs/guide/speedup-seed-method.md"


def list_given_flags(context: typer.Context, names: str) -> list[str]:
    """Flags of these parameters of a command that its command line has; names with spaces between them."""
    flags: list[str] = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names.split() and source is not None and source.name != "DEFAULT":
            is_off = context.params[parameter.name] is False and parameter.secondary_opts
            flags.append((parameter.secondary_opts if is_off else parameter.opts)[0])
    return flags


def refuse_unused_flags(context: typer.Context, names: str, reader: str, do: str = "remove it") -> None:
    """Refuse those of these parameters that the command line has: `reader` does not use them."""
    if unused := list_given_flags(context, names):
        raise ConfigError(f"{reader} does not read it", where=", ".join(unused), do=do)


def infer_method(context: typer.Context, method: Method, sign: str | None) -> Method:
    """The method; the seed method where nobody chose one and `sign` names what only that method reads."""
    if sign is None or method is Method.seed or list_given_flags(context, "method"):
        return method
    print_text(f"{sign} is for the seed method: --method seed is used", err=True)
    return Method.seed


def find_profile(paths: Sequence[str]) -> str | None:
    """How a profile folder among these is called; null without one."""
    return "a rapids_4_spark_profile folder" if any(map(is_profile_folder, paths)) else None


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
        loaded = [
            pairs.load_recorded_pair(folder, baseline, candidate, first_runs=first_runs)
            if is_recording(str(folder)) or not folder.is_dir() or baseline or candidate
            else pairs.load_pair_from_folder(folder, first_runs=first_runs)
            for folder in recordings
        ]
        return pairs.join_pairs(dict(zip(names, loaded, strict=True)))
    if not baseline_logs or not candidate_logs:
        raise ConfigError(
            "nothing to compare",
            do="give the folder of a recording (workbench speedup record makes one), or logs: --cpu LOG --gpu LOG",
        )
    labels = (baseline or "baseline", candidate or "candidate") if baseline or candidate else None
    return pairs.load_pair_from_logs(baseline_logs, candidate_logs, labels, first_runs=first_runs)


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
        (BOOKS, pair.books),
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
        _build_document(result.answer, pair, [*frames[:2], (BOOKS, pair.books)], output=str(output)),
        as_json=as_json,
        is_valid=not pair.reasons,
        written=[", ".join(map(str, filter(None, (output, out))))],
    )


def try_seed_method(pair: Pair, queries: Sequence[str]) -> dict[str, float] | None:
    """The seed method's estimates; null where it has none, and the reason is printed."""
    try:
        ratios = estimate_seed_ratios(pair, queries)
        reason = "it needs logs of plain Spark and of an accelerator, of one recording" if ratios is None else ""
    except InputError as error:
        ratios, reason = None, explain_error(error)
    if reason:
        print_text(f"note: no predictions of the seed method: {reason}", err=True)
    return ratios


def validate_calibrated_model(
    pair: Pair, *, out: Path | None, level: float, threshold: float, seed: bool, as_json: bool
) -> NoReturn:
    """Predict each query from the others, and print how far off that is."""
    result = calibrate_with_origin(pair, level)
    ratios = None
    # With fewer queries nothing can be validated, which is then the reason to name.
    if seed and len(result.queries) >= MIN_QUERIES:
        ratios = try_seed_method(pair, result.queries)
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
    frames = ((tables.VALIDATION, validation.validation), (tables.SCORES, validation.scores), (BOOKS, pair.books))
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
    title = "Factors" if command == "generate" else "Validation"
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


def _load_seed_applications(path: str, unusable: dict[str, str], *, accelerated: bool) -> list[SeedApplication]:
    """Load the applications of a side from profiles or event logs; those of the other kind of engine are unusable."""
    if is_profile_folder(path):
        applications = read_profile_folder(path, accelerated=accelerated, unusable=unusable)
    else:
        logs = read_seed_logs(path, unusable=unusable)
        _print_warnings([f"{log.where}: {warning}" for log in logs for warning in log.warnings])
        applications = [build_seed_application(log) for log in logs]
    return keep_usable(
        applications,
        lambda application: check_application_side(application, accelerated=accelerated),
        lambda application: application.where,
        unusable,
    )


def _end_with_unusable(unusable: Mapping[str, str], what: str) -> None:
    """Print the logs and applications that were left out, if any, and then exit with 1."""
    for name, reason in unusable.items():
        print_text(f"{what}: {remove_secrets(name)}: {reason}")
    if unusable:
        raise typer.Exit(ExitCode.INVALID)


def generate_seed_factors(
    cpu: str, gpu: str, output: Path, *, verbose: bool, unusable: dict[str, str] | None = None
) -> None:
    """Write the factor file of the original generator; exit code 1 with unusable logs, unless `unusable` gets them."""
    left_out = unusable
    unusable = {} if unusable is None else unusable
    plain = _load_seed_applications(cpu, unusable, accelerated=False)
    accelerated = _load_seed_applications(gpu, unusable, accelerated=True)
    accelerated = keep_usable(accelerated, factor_files.check_stage_durations, lambda app: app.where, unusable)
    result = factor_files.generate_factors(plain, accelerated)
    write_text(output, result.format_csv())
    _print_warnings(result.warnings)
    if verbose:
        print_text(result.format_details().rstrip("\n"))
    print_text(f"written: {output} ({len(result.get_factors())} operators; {GUIDE})", err=True)
    if left_out is None:
        _end_with_unusable(unusable, "not used")


def write_seed_profiles(eventlogs: Sequence[str], folder: Path) -> None:
    """Write a profile folder as the original profiler does; exit code 1 with unusable logs."""
    unusable: dict[str, str] = {}
    for path in write_profile_folder(eventlogs, folder, unusable=unusable):
        print_text(f"written: {path}")
    _end_with_unusable(unusable, "not profiled")


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
    _end_with_unusable(unusable, "not estimated")


def validate_seed_method(
    logs: tuple[str, str | None],
    output: Path,
    *,
    speedups: Path | None,
    profiles: tuple[Path | None, Path | None],
    verbose: bool,
) -> None:
    """Generate, qualify and compare with measured times, as the original validation does.

    `logs`: The accelerated log may be null beside its profile. Exit code 1 with unusable logs.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        # The original deletes it.
        raise ConfigError("the output folder is not empty", where=output, do="give a new folder")
    cpu_log, gpu_log = logs
    cpu_profile, gpu_profile = profiles
    unused = {
        "--cpu_profile is not used: --speedups replaces the factors that it is for": cpu_profile and speedups,
        "--gpu_log is not read: --gpu_profile replaces it": gpu_log and gpu_profile,
        "--verbose prints nothing: --speedups replaces the factors whose times it is for": verbose and speedups,
    }
    for note in (note for note, is_given in unused.items() if is_given):
        print_text(note, err=True)
    factors = None if speedups is None else load_seed_factors(speedups, None)
    print_text(f"Output folder = {output}\nCPU event log = {cpu_log}\nGPU event log = {gpu_log or gpu_profile}")
    unusable: dict[str, str] = {}
    if gpu_profile is None:
        write_profile_folder([str(gpu_log)], output / "gpu_profile", unusable=unusable)
    accelerated = str(gpu_profile or output / "gpu_profile")
    measured = _load_seed_applications(accelerated, unusable, accelerated=True)
    if factors is None:
        if cpu_profile is None:
            write_profile_folder([cpu_log], output / "cpu_profile", unusable=unusable)
        plain, scores = str(cpu_profile or output / "cpu_profile"), output / "generatedScores.csv"
        generate_seed_factors(plain, accelerated, scores, verbose=verbose, unusable=unusable)
        factors = factor_files.read_factor_file(scores)
    not_estimated: dict[str, str] = {}
    estimates = estimate_applications([cpu_log], factors, unusable=not_estimated)
    if not estimates:
        reasons = "; ".join(f"{log}: {reason}" for log, reason in not_estimated.items())
        raise InputError("no log of the CPU side can be estimated", found=reasons[:1000])
    _print_warnings([warning for app in estimates for warning in app.warnings])
    write_qualification(estimates, output / "cpu", unusable=not_estimated)
    unusable |= not_estimated
    comparison = compare_estimates(estimates, measured, unusable=unusable)
    print_text(format_validation_report(comparison).rstrip("\n"))
    _end_with_unusable(unusable, "not compared")
