"""What if these factors were others? Sliders that predict again and draw anew, live; the same picture without them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from workbench import files, renderer, runs, stats
from workbench.display import table
from workbench.errors import InputError
from workbench.speedup import charts
from workbench.speedup.measured import Measured
from workbench.speedup.model import FactorModel
from workbench.speedup.steps import steps

if TYPE_CHECKING:
    import altair as alt

STATE = "what_if.json"
# What `runs.current` notes as the command of a run that somebody makes in JupyterLab.
LIVE = "live"
MAX_STATE_BYTES = 1 << 20
LEAST_FACTOR, MOST_FACTOR = 0.25, 10.0
# Operators below this share of the baseline's time move nothing that could be seen.
LEAST_SHARE, MOST_SLIDERS = 0.01, 12
# A factor that is moved by less than this stays the measured one.
SAME = 0.005


def parse_factors(texts: Sequence[str]) -> dict[str, float]:
    """Factors given as `Operator=1.5`, by operator.

    Raises
    ------
    InputError
        A text has no `=`, or no number behind it; or an operator comes twice.

    Examples
    --------
    >>> parse_factors(["Filter=1.5", "Sort = 2"])
    {'Filter': 1.5, 'Sort': 2.0}
    """
    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        name = name.strip()
        try:
            factor = float(value)
        except ValueError:
            factor = math.nan
        if not sign or not name or not math.isfinite(factor):
            raise InputError(
                "not a factor set by hand", where="factors set by hand", found=text, allowed="Operator=1.5"
            )
        if name in found:
            raise InputError("operator set twice", where="factors set by hand", found=name, do="set it once")
        found[name] = factor
    return found


class WhatIf:
    """Predictions with factors that can be changed; which ones are changed is kept in the run folder.

    Parameters
    ----------
    model
        Measured factors.
    side
        The baseline's executions, from `workbench.speedup.steps.counted`.
    pairs
        Table `pairs`.
    run
        Where the choice is kept, as `what_if.json`; null keeps it nowhere. A live run takes up what the last live run
        of the same parameters had chosen, so that a new kernel goes on where the old one was.
    chosen
        Factors set by hand at the start, by operator; they win over what was kept.
    query
        The query whose steps are shown first; the longest by default.
    level
        Of the prediction intervals.

    Raises
    ------
    InputError
        `chosen` names an operator without a factor, or is no finite number above 0.
    """

    def __init__(
        self,
        model: FactorModel,
        side: Measured,
        pairs: pl.DataFrame,
        *,
        run: runs.Run | None = None,
        chosen: Mapping[str, float] | None = None,
        query: str = "",
        level: float = stats.LEVEL,
    ) -> None:
        self.model, self.side, self.pairs, self.query, self.level = model, side, pairs, query, level
        self.run = run
        self.measured = {term.operator: math.exp(term.log_factor) for term in model.terms}
        kept = restored(run) if run is not None and not chosen else {}
        self.chosen = dict(chosen or {name: value for name, value in kept.items() if name in self.measured})
        self.model.factors(self.chosen)  # refuses what is no factor
        self._measured_ratio = self._ratio({})
        self.keep()

    def set(self, operator: str, factor: float) -> None:
        """Set one factor; set to the measured one, it is no longer changed.

        Raises
        ------
        InputError
            No such operator, or not a factor.
        """
        self.model.factors({operator: factor})
        if abs(factor / self.measured[operator] - 1) < SAME:
            self.chosen.pop(operator, None)
        else:
            self.chosen[operator] = factor
        self.keep()

    def reset(self) -> None:
        """Back to the measured factors."""
        self.chosen = {}
        self.keep()

    def keep(self) -> None:
        """Write what is chosen into the run folder."""
        if self.run is not None:
            document = {"format_version": 1, "factors": self.chosen}
            files.write_text(self.run.folder / STATE, json.dumps(document, indent=1) + "\n")

    def important(self) -> list[str]:
        """Operators that get a slider: the most time first, those without time on one side left out."""
        ranked = sorted(self.model.terms, key=lambda term: (-term.baseline_share, term.operator))
        good = [
            term.operator
            for term in ranked
            if term.operator in self.chosen or (term.baseline_share >= LEAST_SHARE and " only" not in term.quality)
        ]
        return good[:MOST_SLIDERS]

    @property
    def first_query(self) -> str:
        """The query whose steps are shown: the one asked for, else the longest on the baseline."""
        longest = self.pairs.sort("baseline_s", descending=True)["query"].head(1).to_list()
        return self.query or (longest[0] if longest else "")

    def steps(self) -> pl.DataFrame:
        """Table `steps` with the chosen factors."""
        return steps(self.model, self.side, self.pairs, overrides=self.chosen, level=self.level)

    def chart(self) -> alt.Chart:
        """The waterfall with the chosen factors."""
        return charts.chart_steps(self.steps(), query=self.query, changed=len(self.chosen))

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        n = self.pairs.height
        measured = f"{self._measured_ratio:.2f} times as fast as {self.model.baseline}"
        if not self.chosen:
            return f"With the measured factors {self.model.candidate} is predicted to run the {n} queries {measured}."
        named = ", ".join(f"{name} {value:.2f}" for name, value in sorted(self.chosen.items()))
        return (
            f"With {named}, {self.model.candidate} is predicted to run the {n} queries {self._ratio(self.chosen):.2f}"
            f" times as fast as {self.model.baseline}; with the measured factors {self._measured_ratio:.2f} times."
        )

    def factors(self) -> pl.DataFrame:
        """The operators with a slider: `operator, measured_factor, chosen_factor, baseline_share`."""
        share = {term.operator: term.baseline_share for term in self.model.terms}
        rows = [
            {
                "operator": name,
                "measured_factor": self.measured[name],
                "chosen_factor": self.chosen.get(name, self.measured[name]),
                "baseline_share": share[name],
            }
            for name in self.important()
        ]
        figures = ("measured_factor", "chosen_factor", "baseline_share")
        schema = {"operator": pl.String()} | dict.fromkeys(figures, pl.Float64())
        return pl.DataFrame(rows, schema=schema)

    def show(self) -> None:
        """Show the waterfall, and sliders above it where somebody can move them; else the figures they stand at."""
        from IPython.display import Markdown, display

        if renderer.is_headless():
            factors = table(self.factors(), caption="Factors that sliders move, live", limit=MOST_SLIDERS)
            display(self.chart(), Markdown(self.answer), factors)  # type: ignore[no-untyped-call]
            return
        from workbench.speedup.controls import Controls

        Controls(self).show()

    def _ratio(self, overrides: Mapping[str, float]) -> float:
        """Geometric mean over queries of the baseline's time over the predicted one."""
        found = steps(self.model, self.side, self.pairs, overrides=overrides, level=self.level)
        logs = found.filter(pl.col("kind").is_in(["baseline", "predicted"])).select(
            pl.when(pl.col("kind") == "baseline").then(pl.col("time_s").log()).otherwise(-pl.col("time_s").log())
        )
        return math.exp(float(logs.sum().item()) / max(1, found["query"].n_unique()))


def restored(run: runs.Run) -> dict[str, float]:
    """Factors that this run had chosen; for a live one also those of the last live run of the same parameters."""
    if (run.folder / STATE).is_file() or run.record["command"] != LIVE:
        return _read(run.folder / STATE)
    for earlier in runs.find(run.folder.parent):
        same = earlier.record["command"] == LIVE and earlier.record["config"] == run.record["config"]
        if same and earlier.folder != run.folder and (earlier.folder / STATE).is_file():
            return _read(earlier.folder / STATE)
    return {}


def _read(path: Path) -> dict[str, float]:
    """Factors of a kept choice; nothing where there is none or it is no such file, for it only spares work."""
    try:
        if path.stat().st_size > MAX_STATE_BYTES:
            return {}
        factors = json.loads(path.read_text(encoding="utf-8"))["factors"]
        return {str(name): float(value) for name, value in factors.items() if 0 < float(value) < math.inf}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
