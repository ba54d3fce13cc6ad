"""The notebook's study: a session, its effects, the recommended stack, and a mix with adjustable weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench.core.tables import Table
from workbench.indicators import summary
from workbench.indicators.analysis.effects import Comparison, compare_session, format_dimension_effects
from workbench.indicators.analysis.idle_effects import format_idle_effects
from workbench.indicators.analysis.observations import describe_reports, load_observations
from workbench.indicators.charts import LIMIT_ROWS, build_round_log_ratios, chart_mix, chart_ranking
from workbench.indicators.config import NotebookConfig
from workbench.indicators.contract.indicator import Case, Indicator
from workbench.indicators.invariants import check_study
from workbench.indicators.measurement.sessions import AREA
from workbench.indicators.recommendation.conclusion import Recommendation
from workbench.indicators.recommendation.metric_mix import Mix
from workbench.indicators.recommendation.recommendation_request import RecommendationRequest
from workbench.indicators.recommendation.recommender import recommend
from workbench.indicators.tables import (
    CHECKS,
    DIMENSIONS,
    DRIFT,
    EFFECTS,
    EXCLUDED,
    JUDGEMENTS,
    JUSTIFICATIONS,
    OBSERVATIONS,
    RECOMMENDATIONS,
    RUNS,
)
from workbench.live.result_widgets import WhatIfControls, slider_options
from workbench.live.status_line import live_status_line
from workbench.report.display import CellDisplay, KeyNumber, bullets
from workbench.runs.run_folder import Run

if TYPE_CHECKING:
    import altair as alt

_TOO_LARGE = (
    f"Not drawn: the ranking over this mix needs more than {LIMIT_ROWS:,} measurements. "
    "See the recommendation's table, or choose a mix of fewer metrics."
)


class LiveMix:
    """A session with weights that can be changed."""

    def __init__(self, comparison: Comparison, request: RecommendationRequest) -> None:
        self.comparison, self.request = comparison, request
        planned = [metric.name for case in comparison.observed.session.cases for metric in case.metrics]
        self.metrics: list[str] = sorted(planned)
        values = set(comparison.observed.values["metric"])
        measured_names = [name for name in self.metrics if name in values] or self.metrics
        mix = Mix.equal_weights(measured_names) if request.mix is None else Mix.from_text(request.mix, self.metrics)
        self.weights: dict[str, float] = {name: round(mix.weights.get(name, 0.0), 2) for name in self.metrics}

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change weights; metrics that are not named keep theirs. Setting all to 0 changes nothing."""
        merged = {**self.weights, **weights}
        if any(weight > 0 for weight in merged.values()):
            self.weights = merged

    @property
    def recommendation(self) -> Recommendation:
        """The recommendation for these weights."""
        text = ",".join(f"{name}={weight:g}" for name, weight in self.weights.items() if weight > 0)
        return recommend(self.comparison, self.request.model_copy(update={"mix": text}))

    @cached_property
    def logs(self) -> pl.DataFrame:
        """Data of the chart (see `build_round_log_ratios`), the same for all weights."""
        return build_round_log_ratios(self.comparison)

    def chart(self, *, sliders: bool = True) -> alt.LayerChart | CellDisplay:
        """Draw the ranking over the mix, with sliders in the page unless live controls replace them.

        If the session has more measurements than a page can handle, only metrics with a weight are drawn; if these
        are too many as well, a sentence says so.
        """
        session, logs = self.comparison.observed.session, self.logs
        if logs.height > LIMIT_ROWS:
            logs = logs.filter(pl.col("metric").is_in([name for name, weight in self.weights.items() if weight > 0]))
            if not 0 < logs.height <= LIMIT_ROWS:
                return bullets([_TOO_LARGE])
        left_out = self.logs["metric"].n_unique() - logs["metric"].n_unique()
        baseline, margin = session.get_arm(session.baseline).stack, self.recommendation.margin
        return chart_mix(
            logs,
            self.weights,
            baseline,
            margin=margin,
            level=session.level,
            sequence=session.method == "sequence",
            sliders=sliders,
            left_out=left_out,
        )

    def show(self) -> None:
        """Show sliders with the sentence and the chart that they change; headless, the chart with its own sliders."""
        from workbench.charts import renderer

        if renderer.is_headless():
            from IPython.display import display

            display(self.chart())  # type: ignore[no-untyped-call]
            return

        MixControls(self).show()


@dataclass(frozen=True)
class Study:
    """The notebook's result; implements `workbench.report.study.Study`."""

    config: NotebookConfig
    comparison: Comparison
    recommendation: Recommendation

    @property
    def answer(self) -> str:
        """The recommendation in one sentence."""
        return self.recommendation.answer.claim

    @property
    def details(self) -> list[str]:
        """The recommendation with all its figures, and the mix that it holds for."""
        return [f"{self.recommendation.answer.sentence}.", f"Mix: {self.mix}."]

    @property
    def conditions(self) -> tuple[str, ...]:
        """Ratios that no run measured."""
        table = self.recommendation.table
        return ("predicted",) if table.filter(pl.col("recommended") & pl.col("predicted")).height else ()

    def chart_ranking(self) -> alt.LayerChart:
        """Each stack over the mix against the margin."""
        found, observed = self.recommendation, self.comparison.observed
        return chart_ranking(found.table, found.excluded, observed.session.baseline, found.margin)

    @property
    def mix(self) -> str:
        """The weights as text."""
        return str(self.recommendation.mix)

    @property
    def weighed(self) -> tuple[str, ...]:
        """Metrics of the mix; charts without room for all metrics show these first."""
        return tuple(self.recommendation.mix.weights)

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Whether the session holds, and at least one comparison is decided."""
        return "valid" if self.comparison.valid and self.recommendation.is_known else "invalid"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the session is invalid or nothing is decided; empty for a valid one."""
        if self.verdict == "valid":
            return ()
        if not self.comparison.valid:
            return tuple(self.comparison.judgement["reasons"][0])
        return (f"nothing is known yet: {self.recommendation.answer.sentence}",)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the session was measured, with its notes and warnings."""
        session = self.comparison.observed.session
        judgement = self.comparison.judgement.row(0, named=True)
        runs = f"{judgement['runs']} runs in {judgement['rounds']} rounds, {judgement['failed']} without values"
        where = f"{session.hardware.cpu_model}, {session.threads} thread(s), {session.created_at[:10]}"
        ended = f"; ended: {session.stop_reason}" if session.stop_reason else ""
        warnings = tuple(judgement["reasons"]) if self.comparison.valid else ()
        table = self.comparison.dimensions
        dimensions = format_dimension_effects(table) if table is not None else []
        reports = describe_reports(self.comparison.observed)
        idle = format_idle_effects(self.comparison.effects)
        return (f"Measured: {runs}, on {where}{ended}.", *idle, *dimensions, *reports, *session.notes, *warnings)

    @property
    def ranking(self) -> pl.DataFrame:
        """The columns of the recommendation that the notebook shows."""
        names = ("rank", "stack", "ratio", "low", "high", "p_best", "p_near", "regret_pct", "verdict", "n")
        return self.recommendation.table.select(*names)

    @property
    def excluded(self) -> pl.DataFrame:
        """The excluded stacks, with the unit and reason that excluded each."""
        return self.recommendation.excluded.select("stack", "unit", "reason")

    @property
    def justification(self) -> pl.DataFrame:
        """The sentences of the justification, with the number of runs behind each."""
        table = self.recommendation.justifications
        return table.select("type", "message", pl.col("runs").list.len().cast(pl.Int64).alias("n_runs"), "link")

    @property
    def mixing(self) -> LiveMix:
        """The mix, with weights that can be changed."""
        return LiveMix(self.comparison, self.config.request)

    def key_numbers(self) -> list[KeyNumber]:
        """The key numbers below the answer."""
        return summary.list_key_numbers(self.comparison, self.recommendation)

    def next_steps(self) -> list[str]:
        """Next steps, in at most three sentences."""
        session_id = self.comparison.observed.session.session_id
        folder = f"RUN/session/{AREA}/{session_id}" if self.config.live else "SESSION"
        return summary.list_next_steps(self.comparison, self.recommendation, folder, live=self.config.live)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """The tables of the run folder, each with its declaration."""
        comparison, recommendation = self.comparison, self.recommendation
        return [
            (RUNS, comparison.observed.runs),
            (OBSERVATIONS, comparison.observed.values),
            (CHECKS, comparison.observed.checks),
            (EFFECTS, comparison.effects),
            (DRIFT, comparison.drift),
            (JUDGEMENTS, comparison.judgement),
            (RECOMMENDATIONS, recommendation.table),
            (EXCLUDED, recommendation.excluded),
            (JUSTIFICATIONS, recommendation.justifications),
            *([(DIMENSIONS, comparison.dimensions)] if comparison.dimensions is not None else []),
        ]

    def check(self) -> pl.DataFrame:
        """Check the invariants.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        return check_study(self.comparison, self.recommendation)


def build_study(config: NotebookConfig, run: Run, indicator: type[Indicator] | None = None) -> Study:
    """Measure or read a session, compare its stacks, recommend one, and write the tables into the run folder.

    Parameters
    ----------
    config, run
        The notebook's parameters, and its run folder.
    indicator
        An indicator to measure beside the configured ones; only live.

    Raises
    ------
    ConfigError, InputError
        A setting is wrong, or a folder holds no session.
    RunFailedError
        A stack cannot be installed.
    """
    request = config.request
    if config.live:
        from workbench.indicators.measurement import sessions
        from workbench.indicators.measurement.session_progress import RoundLines
        from workbench.indicators.shipped.indicator_classes import parse_case

        cases = [parse_case(text) for text in config.indicators] + (
            [Case.from_parameters(indicator)] if indicator is not None else []
        )
        settings = config.build_session_config(run.folder)
        with live_status_line() as set_status:
            watcher = RoundLines(set_status)
            outcome = sessions.start_session(settings, cases=cases, out=run.folder / "session", watcher=watcher)
        comparison = outcome.compared
    else:
        # Before add_input: its error for a wrong folder is better.
        comparison = compare_session(load_observations(Path(config.session)))
        run.add_input(Path(config.session) / "session.json")
    study = Study(config, comparison, recommend(comparison, request))
    for table, frame in study.tables():
        run.write_table(table, frame)
    return study


class MixControls(WhatIfControls):
    """Sliders, a sentence and a chart, bound to one `LiveMix`; works without a front end, too."""

    def __init__(self, mixing: LiveMix) -> None:
        import ipywidgets

        super().__init__()
        self.mixing = mixing
        shared = slider_options(190, 480, ".2f")
        self.sliders = {
            name: ipywidgets.FloatSlider(
                value=weight, min=0.0, max=1.0, step=0.05, description=name, tooltip=name, **shared
            )
            for name, weight in mixing.weights.items()
        }
        for name, slider in self.sliders.items():
            slider.observe(lambda change, name=name: self._apply_move(name, change["new"]), "value")
        self.update_answer()

    def format_answer(self) -> str:
        """The recommendation for the current weights."""
        return self.mixing.recommendation.answer.sentence

    def build_chart(self) -> Any:
        """The ranking over the current mix, without the chart's own sliders."""
        return self.mixing.chart(sliders=False)

    def list_controls(self) -> list[Any]:
        """The sliders, one below the other."""
        return list(self.sliders.values())

    def _apply_move(self, name: str, weight: float) -> None:
        self.mixing.set_weights({name: weight})
        self.redraw()
