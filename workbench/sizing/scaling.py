"""From the capacities at several GPU counts to the count that carries a load: is twice the GPUs twice the users?

Pure. With two or three counts a line and Amdahl's law stand side by side, with four or more the universal scalability
law, all of them as `capacity(N) = per_gpu N / (1 + contention (N - 1) + coherency N (N - 1))`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.errors import InputError
from workbench.sizing.tables import SCALING

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
Model = Literal["linear", "Amdahl", "USL"]
TERMS: dict[Model, int] = {"linear": 1, "Amdahl": 2, "USL": 3}
FEWEST_FOR_USL = 4
REACH = 2
"""How many times the largest measured count a law is believed."""
NORMAL_95 = 1.6448536269514722


@dataclass(frozen=True)
class Measured:
    """The capacity that a GPU count showed, with its 90 % interval."""

    gpus: int
    capacity: float
    low: float
    high: float


def scaling(
    target: str, measured: Sequence[Measured], load: float, *, draws: int = 1000, seed: int = 0
) -> pl.DataFrame:
    """How many GPUs carry the load, by each law that so many counts can tell?

    Parameters
    ----------
    target
        Name of the goal, for the table.
    measured
        Capacities of two or more GPU counts.
    load
        Load to be carried, in the unit of the capacities.
    draws, seed
        Draws of the interval, start of the random numbers.

    Returns
    -------
    DataFrame
        The table `scaling`: per law its parameters and the least whole count, both with 90 % intervals, null beyond
        twice the largest measured count.

    Raises
    ------
    InputError
        Fewer than two counts, or one twice.

    Notes
    -----
    Each draw takes the capacities from log-normal distributions with the given intervals and fits anew. Parameters
    are not negative. Two counts fit Amdahl's law exactly: nothing then says whether it holds.
    Source: Gunther, Guerrilla Capacity Planning (2007), chapter 4; linear least squares of N / capacity, which has the
    law's terms as coefficients.

    Examples
    --------
    >>> table = scaling("p95", [Measured(1, 10, 9.9, 10.1), Measured(2, 18, 17.8, 18.2)], 30)
    >>> table.select("model", "gpus").rows()
    [('linear', 4), ('Amdahl', 4)]
    """
    counts = [one.gpus for one in measured]
    if len(set(counts)) < 2 or len(set(counts)) < len(counts):
        raise InputError("scaling needs two or more GPU counts, each once", found=counts)
    gpus = np.array(counts, dtype=np.float64)
    capacities = np.array([one.capacity for one in measured])
    errors = np.array([(math.log(one.high) - math.log(one.low)) / (2 * NORMAL_95) for one in measured])
    noise = np.random.default_rng(seed).standard_normal((draws, len(gpus)))
    drawn = capacities * np.exp(noise * errors)
    models: list[Model] = ["linear", "USL"] if len(counts) >= FEWEST_FOR_USL else ["linear", "Amdahl"]
    weights = 1 / np.maximum(errors, 1e-3)
    return SCALING.frame([_row(target, model, gpus, capacities, drawn, weights, load) for model in models])


def _row(
    target: str, model: Model, gpus: Floats, capacities: Floats, drawn: Floats, weights: Floats, load: float
) -> dict[str, object]:
    fitted = _fit(model, gpus, capacities, weights)
    sampled = np.array([_fit(model, gpus, row, weights) for row in drawn])
    most = REACH * int(gpus.max())
    need = _need(fitted, load, most)
    needs = np.sort([_need(row, load, most) for row in sampled])
    tail = int(0.05 * len(needs))
    low, high = needs[tail], needs[-1 - tail]
    names = ("per_gpu", "contention", "coherency")
    row: dict[str, object] = {"target": target, "model": model, "counts": [int(count) for count in gpus], "load": load}
    for place, name in enumerate(names):
        bounds = np.quantile(sampled[:, place], [0.05, 0.95])
        row |= {name: fitted[place], f"{name}_low": float(bounds[0]), f"{name}_high": float(bounds[1])}
    ends = {"gpus": need, "gpus_low": low, "gpus_high": high}
    row |= {name: int(value) if math.isfinite(value) else None for name, value in ends.items()}
    return row | {
        "verdict": "estimated" if need <= most else "no estimate",
        "reason": _reason(fitted, sampled, load, most) if need > most else None,
    }


def _fit(model: Model, gpus: Floats, capacities: Floats, weights: Floats) -> tuple[float, float, float]:
    """Per GPU, contention, coherency: N / capacity is linear in 1 / per_gpu and its products with them."""
    from scipy.optimize import nnls

    terms = np.stack([np.ones_like(gpus), gpus - 1, gpus * (gpus - 1)], axis=1)[:, : TERMS[model]]
    target = gpus / capacities
    scale = weights / target
    solved = np.zeros(3)
    solved[: TERMS[model]], _ = nnls(terms * scale[:, None], target * scale)
    base = max(float(solved[0]), 1e-12)
    return 1 / base, float(solved[1]) / base, float(solved[2]) / base


def carried(law: tuple[float, float, float], gpus: float) -> float:
    """The capacity of so many GPUs by a law."""
    return float(_law(*law, gpus))


def _law(per_gpu: Any, contention: Any, coherency: Any, gpus: Any) -> Any:
    """The formula, of numbers or of arrays."""
    return per_gpu * gpus / (1 + contention * (gpus - 1) + coherency * gpus * (gpus - 1))


def _need(law: tuple[float, float, float], load: float, most: int) -> float:
    """The least whole count that carries the load; infinite when none up to `most` does."""
    return next((float(n) for n in range(1, most + 1) if carried(law, n) >= load * (1 - 1e-9)), math.inf)


def _reason(law: tuple[float, float, float], sampled: Floats, load: float, most: int) -> str:
    """Why no count up to `most` is given: the law peaks below the load, and surely so, or nobody knows."""
    counts = np.arange(1.0, 4 * most + 1)
    per_gpu, contention, coherency = (sampled[:, place, None] for place in range(3))
    carried_by = _law(per_gpu, contention, coherency, counts)
    if np.mean(carried_by.max(axis=1) < load) >= 0.95:
        best = max(carried(law, n) for n in counts)
        return f"no count carries {load:g}: the law's largest capacity is {best:.4g}"
    return f"more than {most} GPUs, twice the largest measured count: measure a larger one"
