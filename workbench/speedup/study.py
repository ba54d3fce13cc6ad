"""The notebooks' studies (pair, fleet, profile): read inputs, analyse them, write their tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from workbench.core.books import BOOKS, list_book_checks
from workbench.core.errors import ConfigError, InputError
from workbench.core.files import write_text
from workbench.core.tables import Table
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.report.display import KeyNumber
from workbench.runs.run_folder import Run
from workbench.speedup import summary, tables
from workbench.speedup.advice.advice_rules import build_advice
from workbench.speedup.attribution.application_profile import Profile, build_profile, check_profile
from workbench.speedup.calibration.factor_model import FactorModel, load_factor_model
from workbench.speedup.calibration.pair_calibration import (
    MIN_QUERIES,
    CalibrationResult,
    CrossValidation,
    calibrate_with_origin,
    cross_validate,
)
from workbench.speedup.calibration.prediction import read_candidate_plans, select_counted_runs
from workbench.speedup.calibration.what_if import WhatIf, parse_factors
from workbench.speedup.comparison.pair import Pair, load_recorded_pair
from workbench.speedup.config import FleetConfig, NotebookConfig, PairConfig, ProfileConfig
from workbench.speedup.fleet.fleet_logs import open_default_cache
from workbench.speedup.fleet.fleet_reader import measure_fleet
from workbench.speedup.fleet.qualification import (
    Qualification,
    QualificationTerms,
    qualify_applications,
)
from workbench.speedup.invariants import check_fleet, check_pair
from workbench.speedup.scenarios.estimate import Replayer, estimate_scenarios
from workbench.speedup.scenarios.scenario import list_scenarios
from workbench.speedup.scenarios.task_graph import build_task_graph

FACTORS_FILE = "factors.json"
RECORDING_FOLDER = "recording"
# A second of replays; `workbench speedup what-if` replays any number.
MAX_REPLAYED_TASKS = 200_000
SEED_FACTORS_FILE = "seed_factors.csv"


class _JudgedByReasons:
    """A study that is invalid if it has reasons; the other members are those of `workbench.report.study`."""

    @property
    def reasons(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        return "invalid" if self.reasons else "valid"

    @property
    def details(self) -> list[str]:
        return []

    @property
    def conditions(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class PairStudy(_JudgedByReasons):
    """Two sides, their factors, the validation by left-out queries, and predictions with changeable factors."""

    pair: Pair
    calibrated: CalibrationResult
    left_out: CrossValidation | None
    what_if: WhatIf
    seed_note: str = ""

    @property
    def answer(self) -> str:
        return self.calibrated.answer

    @property
    def details(self) -> list[str]:
        return self.calibrated.details

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.pair.reasons

    @property
    def left_out_answer(self) -> str:
        """How well left-out queries were predicted, or why none was."""
        if self.left_out is None:
            return f"Not shown: {len(self.calibrated.queries)} queries, and at least {MIN_QUERIES} are needed."
        return " ".join(filter(None, [self.left_out.answer, self.calibrated.prediction_note, self.seed_note]))

    @property
    def validation(self) -> pl.DataFrame:
        """Table `validation`; empty without left-out queries."""
        return tables.VALIDATION.frame([]) if self.left_out is None else self.left_out.validation

    @property
    def scores(self) -> pl.DataFrame:
        """Table `scores`; empty without left-out queries."""
        return tables.SCORES.frame([]) if self.left_out is None else self.left_out.scores

    @property
    def sides(self) -> dict[str, str]:
        """Names of the sides, as charts take them."""
        return {"baseline": self.pair.baseline, "candidate": self.pair.candidate}

    def key_numbers(self) -> list[KeyNumber]:
        return summary.list_pair_key_numbers(self.calibrated, self.left_out)

    def next_steps(self) -> list[str]:
        return summary.list_pair_next_steps(self.calibrated, self.reasons)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        table_frames = [
            (tables.FACTORS, self.calibrated.factors),
            (tables.PAIRS, self.calibrated.pairs),
            (tables.COMPARABILITY, self.pair.comparability),
            (tables.STEPS, self.what_if.build_steps()),
            (BOOKS, self.pair.books),
        ]
        if self.left_out is not None:
            table_frames += [(tables.VALIDATION, self.left_out.validation), (tables.SCORES, self.left_out.scores)]
        return table_frames

    def check(self) -> pl.DataFrame:
        validation = self.left_out.validation if self.left_out is not None else None
        checks = check_pair(self.pair.measured, self.calibrated, self.what_if.build_steps(), validation)
        return pl.concat([checks, list_book_checks(self.pair.books)])


@dataclass(frozen=True)
class FleetStudy(_JudgedByReasons):
    """Applications ranked by predicted savings; `pair` is null where factors came from a file."""

    qualified: Qualification
    model: FactorModel
    pair: Pair | None

    @property
    def answer(self) -> str:
        return self.qualified.answer

    @property
    def details(self) -> list[str]:
        return self.qualified.details

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*(self.pair.reasons if self.pair is not None else ()), *self.qualified.reasons)

    @property
    def remarks(self) -> pl.DataFrame:
        """Each application with its reason; those without one have no row."""
        shown = self.qualified.applications.select("log", "app_id", "reason")
        return self.qualified.shorten_logs(shown.filter(pl.col("reason").is_not_null()))

    def key_numbers(self) -> list[KeyNumber]:
        return summary.list_fleet_key_numbers(self.qualified)

    def next_steps(self) -> list[str]:
        return summary.list_fleet_next_steps(self.qualified, self.reasons)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        return [
            (tables.APPLICATIONS, self.qualified.applications),
            (tables.PREDICTIONS, self.qualified.predictions),
            (tables.OPERATORS_AT_STAKE, self.qualified.operators_at_stake),
            (BOOKS, self.qualified.books),
        ]

    def check(self) -> pl.DataFrame:
        return pl.concat([check_fleet(self.qualified), list_book_checks(self.qualified.books)])


@dataclass(frozen=True)
class ProfileStudy(_JudgedByReasons):
    """Study of where the time of one application went, from one log."""

    profile: Profile
    facts: EventLogFacts
    # Tables of these names; empty for chosen executions, and where the tasks cannot be replayed.
    advice: pl.DataFrame
    scenarios: pl.DataFrame
    critical_path: pl.DataFrame

    @property
    def answer(self) -> str:
        return self.profile.answer

    @property
    def details(self) -> list[str]:
        return list(self.profile.details)

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.profile.reasons

    def list_advice(self) -> pl.DataFrame:
        """Advice for display: the change with its setting in one column."""
        setting = pl.format("{}: {} = {} (now {})", "change", "setting", "value", "now")
        return self.advice.select(pl.coalesce(setting, "change").alias("change"), "at_most_s", "rests_on", "not_when")

    def list_scenarios(self) -> pl.DataFrame:
        """Scenarios for display, without costs where there is no price."""
        return (
            self.scenarios.drop("cost")
            if self.scenarios["cost"].null_count() == len(self.scenarios)
            else self.scenarios
        )

    def key_numbers(self) -> list[KeyNumber]:
        return summary.list_profile_key_numbers(self.profile)

    def next_steps(self) -> list[str]:
        return summary.list_profile_next_steps(self.profile, self.advice)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        own = [(declared, getattr(self, declared.name)) for declared in tables.ADVICE_TABLES]
        return [*((declared, getattr(self.profile, declared.name)) for declared in tables.PROFILE_TABLES), *own]

    def check(self) -> pl.DataFrame:
        return check_profile(self.profile)


Study = PairStudy | FleetStudy | ProfileStudy


def build_study(config: PairConfig | FleetConfig | ProfileConfig, run: Run) -> Study:
    """Read what the settings name, analyse it, and write its tables (and factors) into the run folder.

    Raises
    ------
    InputError
        An input is missing or of another kind, the sides have no query in common, or a set factor is invalid.
    """
    mode = config.mode if isinstance(config, NotebookConfig) else None
    study: Study
    if isinstance(config, FleetConfig) or (isinstance(config, NotebookConfig) and mode == "fleet"):
        overrides = parse_factors(config.set_factors)
        terms = QualificationTerms(
            baseline_price_per_h=config.price_baseline_per_h,
            candidate_price_per_h=config.price_candidate_per_h,
            level=config.level,
            currency=config.currency if isinstance(config, FleetConfig) else "",
            price_of=config.price_of if isinstance(config, FleetConfig) else "cluster",
        )
        pair: Pair | None = None
        if config.factors_file:
            run.add_input(config.factors_file)
            model = load_factor_model(config.factors_file)
        else:
            pair, calibrated = _calibrate_recording(config, run)
            model = calibrated.model
        model.build_factors(overrides)  # Refuses a wrong name before logs are read.
        for path in config.logs:
            run.add_input(path, digest=False)
        fleet = measure_fleet(config.logs, cache=open_default_cache())
        qualified = qualify_applications(model, fleet.applications, fleet.measured, terms, overrides=overrides)
        study = FleetStudy(qualified, model, pair)
    elif isinstance(config, ProfileConfig) and mode in (None, "profile"):
        facts = read_event_logs(config.event_log)  # First: its error is the clearest for a path that is not a log.
        run.add_input(config.event_log)
        study = study_profile(facts, config)
    else:
        assert isinstance(config, PairConfig)
        study = _study_pair(config, run)
    for declared, frame in study.tables():
        run.write_table(declared, frame)
    return study


def study_profile(facts: EventLogFacts, config: ProfileConfig) -> ProfileStudy:
    """The profile of one log, with what to try and what other shapes would take, where all of the log is profiled."""
    profile = build_profile(facts, sql_ids=config.sql_ids, price_per_executor_h=config.price_per_executor_h)
    no_advice, *no_scenarios = (declared.frame([]) for declared in tables.ADVICE_TABLES)
    if config.sql_ids:
        return ProfileStudy(profile, facts, no_advice, *no_scenarios)
    replayer = _build_replayer(facts)
    advice = build_advice(facts, profile, replayer)
    if replayer is None or replayer.reasons:
        return ProfileStudy(profile, facts, advice, *no_scenarios)
    scenarios = list_scenarios(replayer.graph)
    found = estimate_scenarios(replayer, scenarios, price_per_executor_h=config.price_per_executor_h)
    return ProfileStudy(profile, facts, advice, found.scenarios, found.critical_path)


def _build_replayer(facts: EventLogFacts) -> Replayer | None:
    """Replays of a log's tasks; null where there is nothing to replay, or so much that it would take long."""
    if int(facts.stage_tasks["n_tasks"].sum()) > MAX_REPLAYED_TASKS:
        return None
    try:
        return Replayer(build_task_graph(facts))
    except InputError:
        return None


def _calibrate_recording(config: PairConfig | FleetConfig | NotebookConfig, run: Run) -> tuple[Pair, CalibrationResult]:
    """Factors of the recording; their model goes into the run folder, for `workbench speedup qualify`."""
    pair = load_recorded_pair(config.recording_folder, config.baseline or None, config.candidate or None)
    run.add_input(config.recording_folder)
    calibrated = calibrate_with_origin(pair, config.level)
    calibrated.model.write(run.folder / FACTORS_FILE)
    return pair, calibrated


def _record_pair(config: PairConfig, run: Run) -> Path:
    """Record the configured queries on two engines with this machine's Spark, into the run folder."""
    from workbench.live.status_line import live_status_line
    from workbench.speedup.config import RecordConfig
    from workbench.speedup.recording import recorder

    if len(config.engines) != 2:
        raise ConfigError("not a pair", where="engines", found=config.engines, allowed="two, such as spark and comet")
    names = ("engines", "only", "scale", "sessions")
    settings = {name: getattr(config, name) for name in names}
    wanted = RecordConfig(queries=config.suite, out=run.folder / RECORDING_FOLDER, **settings)
    with live_status_line() as set_status:
        return recorder.record_suite(wanted, say=set_status).recording.folder


def _apply_seed_method(pair: Pair, calibrated: CalibrationResult, run: Run) -> tuple[dict[str, float] | None, str]:
    """Estimates of left-out queries by RAPIDS' own scripts, and a note; their files go into the run folder."""
    from workbench.speedup.compat_rapids_tools.accuracy import estimate_seed_ratios
    from workbench.speedup.compat_rapids_tools.profile_folder import PROFILE_FOLDER, write_profile_folder
    from workbench.speedup.compat_rapids_tools.profile_tables import build_seed_application
    from workbench.speedup.compat_rapids_tools.seed_factors import generate_factors
    from workbench.speedup.compat_rapids_tools.seed_log import explain_error, read_seed_logs

    try:
        ratios = estimate_seed_ratios(pair, calibrated.queries)
        if ratios is None:
            return None, "RAPIDS' scripts need logs of plain Spark and of an accelerator, of one recording."
        first_logs = [side[0] for side in pair.logs]
        cpu, gpu = ([build_seed_application(log) for log in read_seed_logs(path)] for path in first_logs)
        write_text(run.folder / SEED_FACTORS_FILE, generate_factors(cpu, gpu).format_csv())
        write_profile_folder(first_logs, run.folder)
    except InputError as error:
        return None, f"RAPIDS' scripts give no prediction: {explain_error(error)}."
    return ratios, f"RAPIDS' scripts wrote {SEED_FACTORS_FILE} and {PROFILE_FOLDER} into the run folder."


def _study_pair(config: PairConfig, run: Run) -> PairStudy:
    overrides = parse_factors(config.set_factors)
    if config.record:
        config = config.model_copy(update={"recording_folder": str(_record_pair(config, run))})
    pair, calibrated = _calibrate_recording(config, run)
    left_out, seed_note = None, ""
    if len(calibrated.queries) >= MIN_QUERIES:
        ratios, seed_note = _apply_seed_method(pair, calibrated, run) if config.seed_method else (None, "")
        left_out = cross_validate(calibrated, seed_ratios=ratios, level=config.level)
    baseline = select_counted_runs(pair.measured, pair.baseline)
    what_if = WhatIf(
        calibrated.model,
        baseline,
        calibrated.pairs,
        run=run,
        chosen=overrides,
        query=config.query,
        level=config.level,
        plans=read_candidate_plans(pair.measured, pair.candidate),
    )
    return PairStudy(pair, calibrated, left_out, what_if, seed_note)
