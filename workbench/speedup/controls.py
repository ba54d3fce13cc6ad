"""The sliders of a live what-if: one an operator, on a log scale; each move predicts and draws again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from workbench.formats import number
from workbench.live.moving import Moving, slider_options
from workbench.speedup.what_if import LEAST_FACTOR, MOST_FACTOR

if TYPE_CHECKING:
    from workbench.speedup.what_if import WhatIf

STEP = 0.01  # of the decimal logarithm: 2.3 %
LABEL_LENGTH = 26


class Controls(Moving):
    """Sliders, a button that sets them back, a sentence and a chart, bound to one `WhatIf`.

    Nothing here needs a front end: without one the sliders are objects that nobody moves.
    """

    def __init__(self, what_if: WhatIf) -> None:
        import ipywidgets

        super().__init__()
        self.what_if = what_if
        self.sliders: dict[str, Any] = {name: _slider(what_if, name) for name in what_if.important()}
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
            slider.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        self.reset.on_click(lambda _: self._back())
        self.query.observe(lambda change: self._other(change["new"]), "value")
        self.say()

    def words(self) -> str:
        """What the factors as set predict."""
        return self.what_if.answer

    def chart(self) -> Any:
        """The chosen query from one time to the other."""
        return self.what_if.chart()

    def controls(self) -> list[Any]:
        """The sliders in as many columns as there is room for, the query, the way back."""
        import ipywidgets

        grid = ipywidgets.Box(list(self.sliders.values()), layout=ipywidgets.Layout(flex_flow="row wrap", width="100%"))
        bar = ipywidgets.Box(
            [self.query, self.reset], layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center")
        )
        return [grid, bar]

    def _moved(self, name: str, factor: float) -> None:
        if not self._quiet:
            self.what_if.set(name, factor)
            self.redraw()

    def _back(self) -> None:
        self.what_if.reset()
        self._quiet = True
        try:
            for name, slider in self.sliders.items():
                slider.value = self.what_if.measured[name]
        finally:
            self._quiet = False
        self.redraw()

    def _other(self, query: str) -> None:
        self.what_if.query = query
        self.redraw()


def _slider(what_if: WhatIf, name: str) -> Any:
    import ipywidgets

    measured = what_if.measured[name]
    value = what_if.chosen.get(name, measured)
    least, most = min(LEAST_FACTOR, measured, value), max(MOST_FACTOR, measured, value)
    short = name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"
    return ipywidgets.FloatLogSlider(
        value=value,
        base=10,
        min=math.log10(least) - STEP,
        max=math.log10(most) + STEP,
        step=STEP,
        description=short,
        tooltip=f"{name}: measured {number(measured)}",
        **slider_options(170, 440, ".2f"),
    )
