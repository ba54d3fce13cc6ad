"""What the notebook shows in each of its modes: inputs read, analysed, and the tables that go into the run folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from workbench.display import KeyNumber
from workbench.eventlog.reader import Facts, read
from workbench.runs import Run
from workbench.speedup import calibrated_tables, key_numbers, next_steps, steps
from workbench.speedup import model as models
from workbench.speedup import profile as profiles
from workbench.speedup import qualify as qualification
from workbench.speedup import tables as profile_tables
from workbench.speedup.calibrated import Calibrated, calibrate, with_model
from workbench.speedup.comparability import COMPARABILITY
from workbench.speedup.config import NotebookConfig
from workbench.speedup.fleet import measure_fleet
from workbench.speedup.invariants import check_fleet, check_pair
from workbench.speedup.measured import Measured
from workbench.speedup.model import FactorModel
from workbench.speedup.pair import Pair, from_recording
from workbench.speedup.validation import FEWEST_QUERIES, Validation, validate
from workbench.speedup.what_if import WhatIf, parse_factors
from workbench.tables import Table

FACTORS_FILE = "factors.json"


@dataclass(frozen=True)
class PairStudy:
    """Two sides, factors, how they hold for left-out queries, and predictions that can be changed."""

    pair: Pair
    calibrated: Calibrated
    left_out: Validation | None
    side: Measured
    what_if: WhatIf

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        return self.calibrated.answer

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the pair is invalid; empty when it is valid."""
        return self.pair.reasons

    @property
    def sides(self) -> dict[str, str]:
        """Their names, as charts take them."""
        return {"baseline": self.pair.baseline, "candidate": self.pair.candidate}

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return key_numbers.of_pair(self.calibrated, self.left_out)

    def next_steps(self) -> list[str]:
        """What to do next."""
        return next_steps.of_pair(self.calibrated, self.reasons)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        found = [
            (calibrated_tables.FACTORS, self.calibrated.factors),
            (calibrated_tables.PAIRS, self.calibrated.pairs),
            (COMPARABILITY, self.pair.comparability),
            (steps.STEPS, self.what_if.steps()),
        ]
        if self.left_out is not None:
            found.append((calibrated_tables.VALIDATION, self.left_out.validation))
            found.append((calibrated_tables.SCORES, self.left_out.scores))
        return found

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        validation = self.left_out.validation if self.left_out is not None else None
        return check_pair(self.pair.measured, self.calibrated, self.what_if.steps(), validation)


@dataclass(frozen=True)
class FleetStudy:
    """Applications ranked by what they would save; `pair` is null where factors came from a file."""

    qualified: qualification.Qualified
    model: FactorModel
    pair: Pair | None

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        return self.qualified.answer

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the pair that the factors come from is invalid, or why nothing could be judged."""
        found = self.pair.reasons if self.pair is not None else ()
        judged = (self.qualified.applications["recommendation"] != qualification.NOT_JUDGED).any()
        return found if judged else (*found, "no application could be judged; the table says why")

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return key_numbers.of_fleet(self.qualified)

    def next_steps(self) -> list[str]:
        """What to do next."""
        return next_steps.of_fleet(self.qualified, self.reasons)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        return [
            (qualification.APPLICATIONS, self.qualified.applications),
            (calibrated_tables.PREDICTIONS, self.qualified.predictions),
            (qualification.OPERATORS_AT_STAKE, self.qualified.operators_at_stake),
        ]

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        return check_fleet(self.qualified)


@dataclass(frozen=True)
class ProfileStudy:
    """One log, and what its application spent its time on."""

    profile: profiles.Profile
    facts: Facts

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        return self.profile.answer

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the log is invalid; empty when it is valid."""
        return self.profile.reasons

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return key_numbers.of_profile(self.profile)

    def next_steps(self) -> list[str]:
        """What to do next."""
        return next_steps.of_profile(self.profile)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        return [(declared, getattr(self.profile, declared.name)) for declared in profile_tables.ALL]

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        return profiles.check(self.profile, self.facts)


Study = PairStudy | FleetStudy | ProfileStudy


def verdict(study: Study) -> Literal["valid", "invalid"]:
    """Is the run valid?"""
    return "invalid" if study.reasons else "valid"


def study(config: NotebookConfig, run: Run) -> Study:
    """Read what the mode needs, analyse it, and write its tables (and factors) into the run folder.

    Raises
    ------
    InputError
        An input is not there or is no such thing, nothing can be compared, or a factor is set by hand that is none.
    """
    makers: dict[str, Callable[[NotebookConfig, Run], Study]] = {"pair": _pair, "fleet": _fleet, "profile": _profile}
    found = makers[config.mode](config, run)
    for declared, frame in found.tables():
        run.write_table(declared, frame)
    return found


def _calibrated(config: NotebookConfig, run: Run) -> tuple[Pair, Calibrated]:
    """Factors of the recording; their model goes into the run folder, for `workbench speedup qualify`."""
    pair = from_recording(config.recording_folder, config.baseline or None, config.candidate or None)
    run.add_input(config.recording_folder)
    found = calibrate(pair.measured, pair.baseline, pair.candidate, level=config.level, engines=pair.engines)
    differing = pair.comparability.filter(pl.col("severity") != "ok").to_dicts()
    known = {"sources": pair.sources, "comparability": differing, "host": run.record["host"]}
    found = with_model(found, found.model.model_copy(update=known))
    found.model.write(run.folder / FACTORS_FILE)
    return pair, found


def _pair(config: NotebookConfig, run: Run) -> PairStudy:
    by_hand = parse_factors(config.set_factors)
    pair, found = _calibrated(config, run)
    left_out = validate(found, level=config.level) if len(found.queries) >= FEWEST_QUERIES else None
    side = steps.counted(pair.measured, pair.baseline)
    what_if = WhatIf(found.model, side, found.pairs, run=run, chosen=by_hand, query=config.query, level=config.level)
    return PairStudy(pair, found, left_out, side, what_if)


def _fleet(config: NotebookConfig, run: Run) -> FleetStudy:
    by_hand = parse_factors(config.set_factors)
    terms = qualification.Terms(
        baseline_price_per_h=config.price_baseline_per_h,
        candidate_price_per_h=config.price_candidate_per_h,
        level=config.level,
    )
    pair: Pair | None = None
    if config.factors_file:
        run.add_input(config.factors_file)
        model = models.read(config.factors_file)
    else:
        pair, found = _calibrated(config, run)
        model = found.model
    model.factors(by_hand)  # A wrong name is told before logs are read.
    for path in config.logs:
        if not set("*?[") & set(path):
            run.add_input(path, digest=False)
    fleet = measure_fleet(config.logs)
    qualified = qualification.qualify(model, fleet.applications, fleet.measured, terms, overrides=by_hand)
    return FleetStudy(qualified, model, pair)


def _profile(config: NotebookConfig, run: Run) -> ProfileStudy:
    facts = read(config.event_log)  # First: it says best what is no log.
    run.add_input(config.event_log)
    return ProfileStudy(profiles.profile(facts, sql_ids=config.sql_ids), facts)
