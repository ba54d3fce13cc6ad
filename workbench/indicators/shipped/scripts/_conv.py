"""A convolution over one or two positions: measured, counted, held against exact sums.

No padding: it is what every framework means the same by. Input is batch, positions, channels; filters are positions,
channels in, channels out; what is turned round for a framework is turned round before the clock starts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run

CHECKED = 64


def lengths(sizes: Sequence[int], filters: Sequence[int], stride: int) -> tuple[int, ...]:
    """How many places the filter has, by position."""
    return tuple((size - width) // stride + 1 for size, width in zip(sizes, filters))  # noqa: B905


def operations(batch: int, places: Sequence[int], filters: Sequence[int], channels: int, out: int) -> int:
    """Additions and multiplications: each output is a sum of K products, K multiplications and K - 1 additions.

    K is the filter's size times the channels in; there is no bias.
    """
    return batch * math.prod(places) * out * (2 * math.prod(filters) * channels - 1)


def measure(run: Run, batch: int, sizes: tuple[int, ...], channels: int, filters: tuple[int, ...]) -> None:
    """Measure one convolution of this shape; the parameters that both kinds share are read here."""
    import _arrays
    import _errors
    from _measure import digest, uniform

    out, stride = run.whole("output_channels", 32, 1), run.whole("stride", 1, 1)
    dtype = run.choice("dtype", ("float32", "float64", "float16", "bfloat16", "tfloat32"))
    run.choice("device", ("cpu", "gpu", "auto"))
    seed = run.whole("seed", 0)
    if any(width > size for size, width in zip(sizes, filters)):  # noqa: B905
        run.refuse(f"the filter is larger than the input: {filters} over {sizes}")
    arrays = _arrays.opened(run)
    x_shape, w_shape = (batch, *sizes, channels), (*filters, channels, out)
    x_count = math.prod(x_shape)
    numbers = uniform(x_count + math.prod(w_shape), seed, _arrays.FLOATS[dtype])
    x_plain = arrays.array(numbers[:x_count], x_shape, dtype)
    w_plain = arrays.array(numbers[x_count:], w_shape, dtype)
    x, w = arrays.images(x_plain), arrays.filters(w_plain)
    slide = arrays.compiled(lambda x, w: arrays.conv(x, w, stride))
    answer = run.first(lambda: arrays.listed(arrays.channels_last(slide(x, w))))
    elapsed_ms = _arrays.timed(run, arrays, lambda: slide(x, w))
    places = lengths(sizes, filters, stride)
    run.results["rate_gflops"] = operations(batch, places, filters, channels, out) / elapsed_ms / 1e6

    x_held, w_held = arrays.listed(x_plain), arrays.listed(w_plain)
    run.checks["input_digest"] = digest(x_held + w_held)
    shape = (batch, *places, out)
    dots = []
    for place in _errors.places(shape, CHECKED):
        window = _window(x_held, x_shape, place, filters, stride)
        dots.append((answer[_flat(place, shape)], window, w_held[place[-1] :: out]))
    run.checks.update(_errors.of_dots(dots, dtype, None))


def _window(
    x: Sequence[Any], shape: Sequence[int], place: Sequence[int], filters: Sequence[int], stride: int
) -> list[Any]:
    """The inputs under the filter at one place: by position, then by channel."""
    window: list[Any] = []
    for offset in itertools.product(*map(range, filters)):
        position = [at * stride + more for at, more in zip(place[1:-1], offset)]  # noqa: B905
        start = _flat((place[0], *position, 0), shape)
        window.extend(x[start : start + shape[-1]])
    return window


def _flat(place: Sequence[int], shape: Sequence[int]) -> int:
    flat = 0
    for at, length in zip(place, shape):  # noqa: B905
        flat = flat * length + at
    return flat
