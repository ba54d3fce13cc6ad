"""Noise of 200 recorded short sessions, resampled: series without a change, and with a planted one."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
RATIOS = Path(__file__).resolve().parents[3] / "data" / "samples" / "indicators" / "history" / "ratios.csv"
STEADY = 200
BLOCK = 10


def load_noise(name: str, ratios: Path = RATIOS) -> tuple[Floats, Floats]:
    """Log ratios and errors of the steady sessions: `followed` (another numpy) or `control` (the same again)."""
    with ratios.open(newline="") as file:
        rows = list(csv.DictReader(file))[:STEADY]
    values, errors = (np.array([float(row[f"{name}_wall{end}"]) for row in rows]) for end in ("", "_error"))
    return values, errors


def resample(
    noise: tuple[Floats, Floats], n: int, draw: np.random.Generator, *, block: int = BLOCK
) -> tuple[Floats, Floats]:
    """A series of n sessions in blocks of neighbours, since noise of a machine comes in stretches."""
    values, errors = noise
    starts = draw.integers(0, len(values), n // block + 1)
    places = ((starts[:, None] + np.arange(block)) % len(values)).ravel()[:n]
    return values[places], errors[places]


def measure_rates(
    noise: tuple[Floats, Floats], n: int, n_series: int, draw: np.random.Generator, *, step_sd: float = 2.0
) -> tuple[float, float]:
    """False changes per 100 sessions, and the share of planted steps that are found within five sessions.

    The step is in standard deviations of the recorded values, at a random place at least ten sessions from both ends.
    """
    from workbench.indicators.history.change_points import find_change_points

    false = sum(len(find_change_points(*resample(noise, n, draw))) for _ in range(n_series))
    found = 0
    for _ in range(n_series):
        values, errors = resample(noise, n, draw)
        at = int(draw.integers(10, n - 9))
        values = values + step_sd * noise[0].std() * (np.arange(n) >= at)
        found += any(abs(one - at) <= 5 for one in find_change_points(values, errors))
    return 100 * false / (n * n_series), found / n_series
