"""What sorting and finding an order share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._arrays import Numpy
    from workbench.indicators.shipped.scripts._measure import Run


def prepared(run: Run, n: int, dtypes: Sequence[str]) -> tuple[Numpy, Any, str]:
    """The framework, random numbers on its device, and how to digest them."""
    import _arrays
    from _measure import digest, uniform, wholes

    n = run.whole("n", n, 1)
    dtype = run.choice("dtype", dtypes)
    run.choice("device", ("cpu", "gpu", "auto"))
    seed = run.whole("seed", 0)
    arrays = _arrays.opened(run)
    kind = "d" if dtype in _arrays.FLOATS else "q"
    numbers = uniform(n, seed, _arrays.FLOATS[dtype]) if kind == "d" else wholes(n, seed, int(dtype[3:]) - 2)
    device_array = arrays.array(numbers, (n,), dtype)
    run.checks["input_digest"] = digest(arrays.listed(device_array), kind)
    return arrays, device_array, kind


def misplaced(right: Sequence[Any], answer: Sequence[Any]) -> int:
    """At how many places two orders differ; what is missing or too much counts, too."""
    differ = sum(value != other for value, other in zip(right, answer))  # noqa: B905
    return int(differ) + abs(len(right) - len(answer))
