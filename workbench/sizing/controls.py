"""The sliders of the live what-if: users and limit; each move calculates and draws again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.live.moving import Moving, slider_options

if TYPE_CHECKING:
    from workbench.sizing.what_if import WhatIf

MOST = 4
"""How many times the asked load the slider reaches."""


class Controls(Moving):
    """Two sliders, a sentence and a chart, bound to one `WhatIf`.

    Nothing here needs a front end: without one the sliders are objects that nobody moves.
    """

    def __init__(self, what_if: WhatIf) -> None:
        import ipywidgets

        super().__init__()
        self.what_if = what_if
        limits = what_if.table["limit_ms"].to_list()
        step = limits[1] - limits[0] if len(limits) > 1 else 1
        words = "Users" if what_if.load_unit == "users" else "Requests per s"
        most = max(2.0, MOST * what_if.load)
        self.load = ipywidgets.FloatSlider(
            value=what_if.load,
            min=min(1.0, what_if.load),
            max=most,
            step=1.0,
            description=words,
            **slider_options(110, 440, ".0f"),
        )
        self.limit = ipywidgets.IntSlider(
            value=what_if.limit_ms,
            min=min(limits),
            max=max(limits),
            step=step,
            description="Limit (ms)",
            **slider_options(110, 440, "d"),
        )
        self.load.observe(lambda change: self._moved(load=change["new"]), "value")
        self.limit.observe(lambda change: self._moved(limit_ms=change["new"]), "value")
        self.say()

    def words(self) -> str:
        """The GPUs that load and limit as set need."""
        return self.what_if.answer

    def chart(self) -> Any:
        """GPUs by load, without the chart's own sliders."""
        return self.what_if.chart(sliders=False)

    def controls(self) -> list[Any]:
        """Load, then limit."""
        return [self.load, self.limit]

    def _moved(self, **changed: Any) -> None:
        self.what_if.set(**changed)
        self.redraw()
