"""Sessions resampled from recorded rounds of equal stacks, and how often each verdict is given of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import stdtrit

from tests.stats.test_sequences import MARGIN, estimate_errors
from workbench.indicators.store.archive import CONTROL
from workbench.stats.verdicts import critical_value

RECORDED = Path(__file__).parents[3] / "data" / "samples" / "indicators" / "noise" / "rounds.csv"
ALPHA = 0.05
MIN_ROUNDS = 5
BLOCK = 10
CLOCKS = ("wall", "cpu")
Logs = np.ndarray


def load_rounds(path: Path = RECORDED) -> dict[str, Logs]:
    """Logs of the recorded times by load: round x arm x clock (wall, CPU); a round that lacks a run is left out."""
    table = pl.read_csv(path)
    found = {}
    for (load,), part in table.partition_by("load", as_dict=True, maintain_order=True).items():
        rounds = [part.pivot(on="arm", index="round", values=f"{clock}_ms").drop("round") for clock in CLOCKS]
        # The control last, so that it can be told from the others.
        names = sorted(rounds[0].columns, key=lambda name: (name == CONTROL, name))
        values = np.stack([one.select(names).to_numpy() for one in rounds], axis=-1)
        found[str(load)] = np.log(values[~np.isnan(values).any(axis=(1, 2))])
    return found


def resample_sessions(logs: Logs, sessions: int, rounds: int, draw: np.random.Generator) -> Logs:
    """Sessions of blocks of neighbouring rounds: session x round x arm x clock.

    Which recorded arm stands for which of the session is drawn once for a session, so that whatever an environment has
    of its own stays with it.
    """
    blocks = -(-rounds // BLOCK)
    starts = draw.integers(0, len(logs), (sessions, blocks))
    places = (starts[:, :, None] + np.arange(BLOCK)).reshape(sessions, -1)[:, :rounds] % len(logs)
    arms = draw.permuted(np.tile(np.arange(logs.shape[1]), (sessions, 1)), axis=1)
    return logs[places[:, :, None], arms[:, None, :]]


@dataclass(frozen=True)
class Claims:
    """Verdicts by session, arm, round and clock, beside the first arm; the last one is the control."""

    faster: np.ndarray
    slower: np.ndarray
    same: np.ndarray

    def share(self, which: str) -> float:
        """Share of the sessions in which any arm by any clock ever gets one of the verdicts (joined by `|`)."""
        any_ = np.logical_or.reduce([getattr(self, name) for name in which.split("|")])
        return float(any_.any(axis=(1, 2, 3)).mean())


def judge_sessions(sessions: Logs, effect: float = 0.0) -> Claims:
    """What is said after each round, where every arm but baseline and control is `exp(-effect)` times as fast.

    As `workbench.indicators.analysis.effects`: a claim by Holm's first step over the family of arms and both clocks
    (which is all of it while nothing is true), SAME by the interval of the one comparison and the control's.
    """
    log_ratio = (sessions[:, :, :1] - sessions[:, :, 1:]).transpose(0, 2, 1, 3)
    rounds, family = log_ratio.shape[2], log_ratio.shape[1] - 1
    log_ratio[:, :-1] -= effect
    mean, error = estimate_errors(log_ratio, axis=-2)
    n = np.arange(1, rounds + 1)
    may_end = (n >= MIN_ROUNDS)[:, None]
    with np.errstate(invalid="ignore"):
        claim = critical_value(n, ALPHA / (family * len(CLOCKS)))[:, None] * error
        own = critical_value(n, ALPHA)[:, None] * error
        within = (mean - own > -MARGIN) & (mean + own < MARGIN) & may_end
        return Claims(
            ((mean - claim > MARGIN) & may_end)[:, :-1],
            ((mean + claim < -MARGIN) & may_end)[:, :-1],
            within[:, :-1] & within[:, -1:],
        )


def find_rounds_needed(claims: np.ndarray) -> tuple[float, float]:
    """Median number of rounds until an arm's claim by a clock's verdicts, and the share claimed within all rounds."""
    ever = claims.any(axis=2)
    first = np.where(ever, claims.argmax(axis=2) + 1, np.inf)
    return float(np.median(first)), float(ever.mean())


def find_fixed_rounds(sessions: Logs, effect: float, clock: int) -> float:
    """Number of rounds, planned beforehand and looked at once, at which half of the arms are told apart by t intervals.

    Infinite where that takes more rounds than there are.
    """
    log_ratio = (sessions[:, :, :1, clock] - sessions[:, :, 1:-1, clock]).transpose(0, 2, 1)[..., None] - effect
    mean, error = estimate_errors(log_ratio, axis=-2)
    n, family = np.arange(1, log_ratio.shape[2] + 1)[:, None], log_ratio.shape[1] * len(CLOCKS)
    told = mean + stdtrit(np.maximum(n - 1, 1), 1 - ALPHA / family / 2) * error < -MARGIN
    share = told[..., 0].mean(axis=(0, 1))
    enough = np.flatnonzero((share >= 0.5) & (n[:, 0] >= MIN_ROUNDS))
    return float(enough[0] + 1) if len(enough) else math.inf


def measure_block_errors(logs: Logs, rounds: int, draw: np.random.Generator, sessions: int) -> tuple[float, float]:
    """Share of false claims, by wall and by CPU time, of two equal stacks measured one after the other.

    All runs of one, then all runs of the other, by the usual t interval of their paired differences.
    """
    start = draw.integers(0, len(logs), sessions)
    arms = draw.permuted(np.tile(np.arange(logs.shape[1]), (sessions, 1)), axis=1)
    steps = np.arange(rounds)
    first = logs[(start[:, None] + steps) % len(logs), arms[:, :1]]
    second = logs[(start[:, None] + rounds + steps) % len(logs), arms[:, 1:2]]
    mean, error = estimate_errors(first - second, axis=-2)
    bound = stdtrit(rounds - 1, 1 - ALPHA / 2) * error[:, -1]
    wall, cpu = (np.abs(mean[:, -1]) - bound > MARGIN).mean(axis=0)
    return float(wall), float(cpu)
