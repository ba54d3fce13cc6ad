"""What-if controls of a notebook: a sentence above them and a chart below, both made anew with each move."""

from __future__ import annotations

from typing import Any

from workbench.formats import escape


class Moving:
    """What areas' controls have in common; a child says `words`, `chart` and `controls`.

    Nothing here needs a front end: without one the controls are objects that nobody moves.
    """

    def __init__(self) -> None:
        import ipywidgets

        self.sentence = ipywidgets.HTML()
        self._chart: Any = None

    def words(self) -> str:
        """The answer, as things are set."""
        raise NotImplementedError

    def chart(self) -> Any:
        """The chart, as things are set."""
        raise NotImplementedError

    def controls(self) -> list[Any]:
        """The widgets, from top to bottom."""
        raise NotImplementedError

    def box(self) -> Any:
        """The sentence, and the controls below it."""
        import ipywidgets

        return ipywidgets.VBox([self.sentence, *self.controls()])

    def show(self) -> None:
        """Show the controls, and below them the chart that they change."""
        from IPython.display import display

        display(self.box())  # type: ignore[no-untyped-call]
        self._chart = display(self.chart(), display_id=True)  # type: ignore[no-untyped-call]

    def redraw(self) -> None:
        """Say and draw what follows from a move."""
        self.say()
        if self._chart is not None:
            self._chart.update(self.chart())

    def say(self) -> None:
        """Renew the sentence alone; it is escaped."""
        self.sentence.value = f'<p role="status">{escape(self.words())}</p>'


def slider_options(label_px: int, width_px: int, readout: str) -> dict[str, Any]:
    """Options that all sliders share."""
    import ipywidgets

    return {
        # Each redraw takes a moment; while a slider is dragged they would pile up.
        "continuous_update": False,
        "style": {"description_width": f"{label_px}px"},
        "layout": ipywidgets.Layout(width=f"{width_px}px", max_width="100%"),
        "readout_format": readout,
    }
