"""The sliders of the live mix: a weight for each metric; each move recommends and draws again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.live.moving import Moving, slider_options

if TYPE_CHECKING:
    from workbench.indicators.mixing import Mixing


class Controls(Moving):
    """Sliders, a sentence and a chart, bound to one `Mixing`.

    Nothing here needs a front end: without one the sliders are objects that nobody moves.
    """

    def __init__(self, mixing: Mixing) -> None:
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
            slider.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        self.say()

    def words(self) -> str:
        """What is recommended for the mix as set."""
        return self.mixing.recommendation.answer.sentence

    def chart(self) -> Any:
        """The stacks over this mix, without the chart's own sliders."""
        return self.mixing.chart(sliders=False)

    def controls(self) -> list[Any]:
        """The sliders below each other."""
        return list(self.sliders.values())

    def _moved(self, name: str, weight: float) -> None:
        self.mixing.set({name: weight})
        self.redraw()
