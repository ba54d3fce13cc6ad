"""Slide filters over random images: a convolution in two dimensions, as networks use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def measure(run: Run) -> None:
    import _conv

    batch = run.whole("batch", 4, 1)
    height = run.whole("height", 64, 1)
    width = run.whole("width", 64, 1)
    channels = run.whole("channels", 8, 1)
    filter_height = run.whole("filter_height", 3, 1)
    filter_width = run.whole("filter_width", 3, 1)
    _conv.measure(run, batch, (height, width), channels, (filter_height, filter_width))


if __name__ == "__main__":
    import _measure

    _measure.main("Conv2d", measure)
