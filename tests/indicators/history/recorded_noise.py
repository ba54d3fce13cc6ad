"""Noise of 200 recorded short sessions, resampled: series without a change, and with a planted one."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class PlantedSeries:
    """A series with a step from session `at` on; null without one."""

    values: Floats
    errors: Floats
    at: int | None = None


def build_series(
    noise: tuple[Floats, Floats], n: int, n_series: int, draw: np.random.Generator, *, step_sd: float = 2.0
) -> list[PlantedSeries]:
    """So many series without a step, then as many with one.

    The step is in standard deviations of the recorded values, at a random place at least ten sessions from both ends.
    """
    series = [PlantedSeries(*resample(noise, n, draw)) for _ in range(n_series)]
    for _ in range(n_series):
        values, errors = resample(noise, n, draw)
        at = int(draw.integers(10, n - 9))
        series.append(PlantedSeries(values + step_sd * noise[0].std() * (np.arange(n) >= at), errors, at))
    return series


def count_rates(series: Sequence[PlantedSeries], found: Sequence[Sequence[int]]) -> tuple[float, float]:
    """False changes per 100 sessions, and the share of planted steps that are found within five sessions."""
    pairs = list(zip(series, found, strict=True))
    plain = [(one, places) for one, places in pairs if one.at is None]
    planted = [any(abs(place - one.at) <= 5 for place in places) for one, places in pairs if one.at is not None]
    sessions = sum(len(one.values) for one, _ in plain)
    return 100 * sum(len(places) for _, places in plain) / sessions, sum(planted) / len(planted)


def measure_rates(
    noise: tuple[Floats, Floats], n: int, n_series: int, draw: np.random.Generator, *, step_sd: float = 2.0
) -> tuple[float, float]:
    """Rates of our change points: false ones per 100 sessions, and the share of planted steps that are found."""
    from workbench.stats.change_points import find_change_points

    series = build_series(noise, n, n_series, draw, step_sd=step_sd)
    return count_rates(series, [find_change_points(one.values, one.errors) for one in series])
