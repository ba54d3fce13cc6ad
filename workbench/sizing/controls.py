"""The sliders of the live what-if: users and limit; each move calculates and draws again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.formats import escape

if TYPE_CHECKING:
    from workbench.sizing.what_if import WhatIf

MOST = 4
"""How many times the asked load the slider reaches."""


class Controls:
    """Two sliders, a sentence and a chart, bound to one `WhatIf`.

    Nothing here needs a front end: without one the sliders are objects that nobody moves.
    """

    def __init__(self, what_if: WhatIf) -> None:
        import ipywidgets

        self.what_if = what_if
        limits = what_if.table["limit_ms"].to_list()
        step = limits[1] - limits[0] if len(limits) > 1 else 1
        # Each redraw takes a moment; while the slider is dragged they would pile up.
        shared = {"continuous_update": False, "style": {"description_width": "110px"}}
        layout = ipywidgets.Layout(width="440px", max_width="100%")
        words = "Users" if what_if.load_unit == "users" else "Requests per s"
        most = max(2.0, MOST * what_if.load)
        self.load = ipywidgets.FloatSlider(
            value=what_if.load,
            min=min(1.0, what_if.load),
            max=most,
            step=1.0,
            description=words,
            readout_format=".0f",
            layout=layout,
            **shared,
        )
        self.limit = ipywidgets.IntSlider(
            value=what_if.limit_ms,
            min=min(limits),
            max=max(limits),
            step=step,
            description="Limit (ms)",
            layout=layout,
            **shared,
        )
        self.sentence = ipywidgets.HTML()
        self._chart: Any = None
        self.load.observe(lambda change: self._moved(load=change["new"]), "value")
        self.limit.observe(lambda change: self._moved(limit_ms=change["new"]), "value")
        self._say()

    def box(self) -> Any:
        """The controls below each other."""
        import ipywidgets

        return ipywidgets.VBox([self.sentence, self.load, self.limit])

    def show(self) -> None:
        """Show the controls, and below them the chart that they change."""
        from IPython.display import display

        display(self.box())  # type: ignore[no-untyped-call]
        self._chart = display(self.what_if.chart(sliders=False), display_id=True)  # type: ignore[no-untyped-call]

    def _moved(self, **changed: Any) -> None:
        self.what_if.set(**changed)
        self._say()
        if self._chart is not None:
            self._chart.update(self.what_if.chart(sliders=False))

    def _say(self) -> None:
        self.sentence.value = f"<p>{escape(self.what_if.answer)}</p>"
