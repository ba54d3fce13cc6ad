"""What-if: predictions with changed factors, with their waterfall and sliders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench import stats
from workbench.charts import renderer
from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.formats import cut_text, format_number
from workbench.live.result_widgets import WhatIfControls, slider_options
from workbench.report.display import table
from workbench.runs import run_folder
from workbench.speedup import charts
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration.factor_model import FactorModel
from workbench.speedup.calibration.prediction import PlanCounts, build_steps

if TYPE_CHECKING:
    import altair as alt

STATE_FILE = "what_if.json"
# Command in the record of a run that is made in JupyterLab.
LIVE_COMMAND = "live"
MAX_STATE_BYTES = 1 << 20
MIN_FACTOR, MAX_FACTOR = 0.25, 10.0
# Operators below this share of the baseline's time have no visible effect.
MIN_SLIDER_SHARE, MAX_SLIDERS = 0.01, 12
# A smaller change counts as the measured factor.
SAME_FACTOR_TOLERANCE = 0.005
SLIDER_STEP = 0.01  # of the decimal logarithm: 2.3 %
LABEL_LENGTH = 26


def parse_factors(texts: Sequence[str]) -> dict[str, float]:
    """Factors given as `Operator=1.5`, by operator.

    >>> parse_factors(["Filter=1.5", "Sort = 2"])
    {'Filter': 1.5, 'Sort': 2.0}
    """
    factors: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        name = name.strip()
        try:
            factor = float(value)
        except ValueError:
            factor = math.nan
        if not sign or not name or not math.isfinite(factor):
            raise InputError("not a what-if factor", where="--set, set_factors", found=text, allowed="Operator=1.5")
        if name in factors:
            raise InputError("operator set twice", where="--set, set_factors", found=name, do="set it once")
        factors[name] = factor
    return factors


class WhatIf:
    """Predictions with factors that can be changed; the changes are kept in the run folder.

    `run`: Run whose folder keeps the changes in `what_if.json`; null keeps nothing. A live run starts with the
    changes of the last live run of the same parameters, so that a new kernel continues where the old one was.
    `chosen`: Factors to start with, by operator; they take precedence over kept ones.
    `plans`: Counts of the candidate's plans by query, as for `predict_queries`.
    """

    def __init__(
        self,
        model: FactorModel,
        side: Measured,
        pairs: pl.DataFrame,
        *,
        run: run_folder.Run | None = None,
        chosen: Mapping[str, float] | None = None,
        query: str = "",
        level: float = stats.LEVEL,
        plans: PlanCounts | None = None,
    ) -> None:
        self.plans = plans
        self.model, self.side, self.pairs, self.query, self.level = model, side, pairs, query, level
        self.run = run
        self.measured = {term.operator: math.exp(term.log_factor) for term in model.terms}
        run_factors = load_chosen_factors(run) if run is not None and not chosen else {}
        self.chosen = dict(chosen or {name: value for name, value in run_factors.items() if name in self.measured})
        self.model.build_factors(self.chosen)  # raises for an invalid factor
        self._measured_ratio = self._mean_ratio({})
        self.write_state()

    def set_factor(self, operator: str, factor: float) -> None:
        """Set one factor; the measured value resets it."""
        self.model.build_factors({operator: factor})
        if abs(factor / self.measured[operator] - 1) < SAME_FACTOR_TOLERANCE:
            self.chosen.pop(operator, None)
        else:
            self.chosen[operator] = factor
        self.write_state()

    def reset_factors(self) -> None:
        """Back to the measured factors."""
        self.chosen = {}
        self.write_state()

    def write_state(self) -> None:
        """Write the chosen factors into the run folder."""
        if self.run is not None:
            document = {"format_version": 1, "factors": self.chosen}
            files.write_text(self.run.folder / STATE_FILE, json.dumps(document, indent=1) + "\n")

    def list_important_operators(self) -> list[str]:
        """Operators with a slider, most time first, without those that have time on one side only."""
        ranked = sorted(self.model.terms, key=lambda term: (-term.baseline_share, term.operator))
        operators = [
            term.operator
            for term in ranked
            if term.operator in self.chosen or (term.baseline_share >= MIN_SLIDER_SHARE and " only" not in term.quality)
        ]
        return operators[:MAX_SLIDERS]

    @property
    def first_query(self) -> str:
        """The query whose steps are shown first: the chosen one, or else the longest on the baseline."""
        longest = self.pairs.sort("baseline_s", descending=True)["query"].head(1).to_list()
        return self.query or (longest[0] if longest else "")

    def build_steps(self) -> pl.DataFrame:
        """Table `steps` with the chosen factors."""
        return self._build_steps(self.chosen)

    def _build_steps(self, overrides: Mapping[str, float]) -> pl.DataFrame:
        return build_steps(self.model, self.side, self.pairs, overrides=overrides, level=self.level, plans=self.plans)

    def chart_steps(self) -> alt.Chart:
        """The waterfall with the chosen factors."""
        return charts.chart_steps(self.build_steps(), query=self.query, changed=len(self.chosen))

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        n = self.pairs.height
        claim = f"{self.model.candidate} is predicted to run the {n} queries at"
        measured = f"{self._measured_ratio:.2f}x"
        if not self.chosen:
            return f"With the measured factors, {claim} {measured} the speed of {self.model.baseline}."
        factors = ", ".join(f"{name} {value:.2f}" for name, value in sorted(self.chosen.items()))
        return (
            f"With {factors}, {claim} {self._mean_ratio(self.chosen):.2f}x the speed of {self.model.baseline};"
            f" with the measured factors at {measured}."
        )

    def list_factors(self) -> pl.DataFrame:
        """List the operators with a slider: `operator, measured_factor, chosen_factor, baseline_share`."""
        share = {term.operator: term.baseline_share for term in self.model.terms}
        rows = [
            {
                "operator": name,
                "measured_factor": self.measured[name],
                "chosen_factor": self.chosen.get(name, self.measured[name]),
                "baseline_share": share[name],
            }
            for name in self.list_important_operators()
        ]
        figures = ("measured_factor", "chosen_factor", "baseline_share")
        schema = {"operator": pl.String()} | dict.fromkeys(figures, pl.Float64())
        return pl.DataFrame(rows, schema=schema)

    def show(self) -> None:
        """Show the waterfall, with sliders in a live notebook and with their values in a report."""
        from IPython.display import Markdown, display

        if renderer.is_headless():
            factors = table(
                self.list_factors(), caption="Factors that have sliders in a live notebook", limit=MAX_SLIDERS
            )
            display(self.chart_steps(), Markdown(self.answer), factors)  # type: ignore[no-untyped-call]
            return

        FactorWhatIfControls(self).show()

    def _mean_ratio(self, overrides: Mapping[str, float]) -> float:
        """Geometric mean over queries of the baseline's time over the predicted one."""
        steps = self._build_steps(overrides)
        logs = steps.filter(pl.col("kind").is_in(["baseline", "predicted"])).select(
            pl.when(pl.col("kind") == "baseline").then(pl.col("time_s").log()).otherwise(-pl.col("time_s").log())
        )
        return math.exp(float(logs.sum().item()) / max(1, steps["query"].n_unique()))


def load_chosen_factors(run: run_folder.Run) -> dict[str, float]:
    """Kept factors of this run, or for a new live run those of the last live run of the same parameters."""
    if (run.folder / STATE_FILE).is_file() or run.record["command"] != LIVE_COMMAND:
        return _read_state(run.folder / STATE_FILE)
    for earlier in run_folder.list_run_folders(run.folder.parent):
        same = earlier.record["command"] == LIVE_COMMAND and earlier.record["config"] == run.record["config"]
        if same and earlier.folder != run.folder and (earlier.folder / STATE_FILE).is_file():
            return _read_state(earlier.folder / STATE_FILE)
    return {}


def _read_state(path: Path) -> dict[str, float]:
    """Kept factors; empty if the file is missing or invalid, since it is only a convenience."""
    try:
        if path.stat().st_size > MAX_STATE_BYTES:
            return {}
        factors = json.loads(path.read_text(encoding="utf-8"))["factors"]
        return {str(name): float(value) for name, value in factors.items() if 0 < float(value) < math.inf}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


class FactorWhatIfControls(WhatIfControls):
    """Sliders, a reset button, the answer and a chart of one `WhatIf`; works without a front end, too."""

    def __init__(self, what_if: WhatIf) -> None:
        import ipywidgets

        super().__init__()
        self.what_if = what_if
        self.sliders: dict[str, Any] = {
            name: _build_slider(what_if, name) for name in what_if.list_important_operators()
        }
        self.reset = ipywidgets.Button(
            description="Back to the measured factors", layout=ipywidgets.Layout(width="auto")
        )
        self.query = ipywidgets.Dropdown(
            options=what_if.pairs["query"].to_list(),
            value=what_if.first_query,
            description="Query",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="auto"),
        )
        self._quiet = False
        for name, slider in self.sliders.items():
            slider.observe(lambda change, name=name: self._on_slider_move(name, change["new"]), "value")
        self.reset.on_click(lambda _: self._on_reset())
        self.query.observe(lambda change: self._on_query_change(change["new"]), "value")
        self.update_answer()

    def format_answer(self) -> str:
        """The prediction with the current factors."""
        return self.what_if.answer

    def build_chart(self) -> Any:
        """The waterfall of the chosen query."""
        return self.what_if.chart_steps()

    def list_controls(self) -> list[Any]:
        """The sliders in columns, the query and the reset button."""
        import ipywidgets

        grid = ipywidgets.Box(list(self.sliders.values()), layout=ipywidgets.Layout(flex_flow="row wrap", width="100%"))
        bar = ipywidgets.Box(
            [self.query, self.reset], layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center")
        )
        return [grid, bar]

    def _on_slider_move(self, name: str, factor: float) -> None:
        if not self._quiet:
            self.what_if.set_factor(name, factor)
            self.redraw()

    def _on_reset(self) -> None:
        self.what_if.reset_factors()
        self._quiet = True
        try:
            for name, slider in self.sliders.items():
                slider.value = self.what_if.measured[name]
        finally:
            self._quiet = False
        self.redraw()

    def _on_query_change(self, query: str) -> None:
        self.what_if.query = query
        self.redraw()


def _build_slider(what_if: WhatIf, name: str) -> Any:
    import ipywidgets

    measured = what_if.measured[name]
    value = what_if.chosen.get(name, measured)
    least, greatest = min(MIN_FACTOR, measured, value), max(MAX_FACTOR, measured, value)
    short = cut_text(name, LABEL_LENGTH)
    return ipywidgets.FloatLogSlider(
        value=value,
        base=10,
        min=math.log10(least) - SLIDER_STEP,
        max=math.log10(greatest) + SLIDER_STEP,
        step=SLIDER_STEP,
        description=short,
        tooltip=f"{name}: measured {format_number(measured)}",
        **slider_options(170, 440, ".2f"),
    )
