"""Slide filters over random signals: a convolution in one dimension, as networks use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def measure(run: Run) -> None:
    import _conv

    batch = run.whole("batch", 8, 1)
    width = run.whole("width", 1024, 1)
    channels = run.whole("channels", 16, 1)
    filter_width = run.whole("filter_width", 5, 1)
    _conv.measure(run, batch, (width,), channels, (filter_width,))


if __name__ == "__main__":
    import _measure

    _measure.main("Conv1d", measure)
