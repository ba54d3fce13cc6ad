"""What if my work were another mix? The recommendation made anew, and the chart that the page calculates itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from workbench.display import Shown, bullets
from workbench.indicators.effects import Compared
from workbench.indicators.mix_chart import LIMIT_ROWS, chart_mix, within_rounds
from workbench.indicators.recommending.mix import Mix
from workbench.indicators.recommending.recommendation import recommend
from workbench.indicators.recommending.request import Request
from workbench.indicators.recommending.result import Recommendation

if TYPE_CHECKING:
    import altair as alt

_TOO_LARGE = (
    f"Not drawn: the ranking over this mix takes more than {LIMIT_ROWS:,} measurements, too many to move. "
    "It stands in the recommendation's table; a mix of fewer metrics is drawn."
)


class Mixing:
    """A session, and weights that may be moved.

    Attributes
    ----------
    found, request
        The session, and what was asked of the recommendation.
    weights
        Metric to weight, all metrics; at least one above 0.
    """

    def __init__(self, found: Compared, request: Request) -> None:
        self.found, self.request = found, request
        planned = [metric.name for case in found.observed.session.cases for metric in case.metrics]
        self.metrics: list[str] = sorted(planned)
        values = set(found.observed.values["metric"])
        known = [name for name in self.metrics if name in values] or self.metrics
        mix = Mix.equal(known) if request.mix is None else Mix.read(request.mix, self.metrics)
        self.weights: dict[str, float] = {name: round(mix.weights.get(name, 0.0), 2) for name in self.metrics}

    def set(self, weights: Mapping[str, float]) -> None:
        """Other weights; what is not named stays. All at 0 is no mix, and changes nothing."""
        wanted = {**self.weights, **weights}
        if any(weight > 0 for weight in wanted.values()):
            self.weights = wanted

    @property
    def recommendation(self) -> Recommendation:
        """What is recommended for these weights."""
        text = ",".join(f"{name}={weight:g}" for name, weight in self.weights.items() if weight > 0)
        return recommend(self.found, self.request.model_copy(update={"mix": text}))

    @cached_property
    def logs(self) -> pl.DataFrame:
        """What the chart is drawn from; the same for all weights."""
        return within_rounds(self.found)

    def chart(self, *, sliders: bool = True) -> alt.LayerChart | Shown:
        """The ranking over the mix; with sliders in the page, or without where live controls move it.

        Of a session with more rounds, stacks and metrics than a page calculates with only the metrics that weigh
        something are drawn; where these are too many, a sentence says so instead.
        """
        session, logs = self.found.observed.session, self.logs
        if logs.height > LIMIT_ROWS:
            logs = logs.filter(pl.col("metric").is_in([name for name, weight in self.weights.items() if weight > 0]))
            if not 0 < logs.height <= LIMIT_ROWS:
                return bullets([_TOO_LARGE])
        left_out = self.logs["metric"].n_unique() - logs["metric"].n_unique()
        said, baseline = self.recommendation, session.arm(session.baseline).stack
        margin, level = said.margin, session.level
        return chart_mix(logs, self.weights, baseline, margin=margin, level=level, sliders=sliders, left_out=left_out)

    def show(self) -> None:
        """Live: sliders, the sentence and the chart they change. Headless: the chart with sliders of its own."""
        from workbench import renderer

        if renderer.is_headless():
            from IPython.display import display

            display(self.chart())  # type: ignore[no-untyped-call]
            return
        from workbench.indicators.controls import Controls

        Controls(self).show()
