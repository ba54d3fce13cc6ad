"""Answers of a step, compared with those of the lowest load; prompts that a cache answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.tables import FAILING_VERDICTS
from workbench.stats import rank_difference_z

Verdicts = dict[int, tuple[str, str | None]]
"""New verdict and reason by step."""
MAX_UNKNOWN_FRACTION = 0.1
"""Largest fraction of successes without a length in a unit, else the next unit is taken; chosen, not derived."""
MAX_LENGTH_FACTOR = 3.0
"""Answers more than this many times shorter or longer than usual are others; chosen, not derived."""
MIN_ANSWERS = 20
"""Fewest answers of a step that are compared; chosen, not derived."""
N_STANDARD_ERRORS = 4.0
"""Standard errors that a difference must exceed: many steps are compared, and a wrong verdict drops a point.

Chosen, not derived.
"""
N_ERRORS_OF_NEW_TEXT = 1.5
"""The same for one text that never came at the lowest load, which chance explains less; chosen, not derived."""
MAX_LONG_EXCESS = 0.05
"""Fraction by which long answers may become more frequent: those are still answers. Chosen, not derived."""
MAX_CHANCE_OF_WRONG = 0.002
"""Largest chance that as few right answers come of the same quality: many steps are compared. Chosen, not derived."""
MIN_COMPARED = 8
"""Fewest first and fewest repeated prompts that are compared; chosen, not derived."""
CACHE_FACTOR = 0.8
"""Ratio of the medians of repeated and of first prompts below which a cache answers; chosen, not derived."""
_COLUMNS = {"tokens": "output_tokens", "bytes": "answer_bytes"}
"""Column of table REQUESTS with the length of an answer by unit."""


@dataclass(frozen=True)
class AnswerProfile:
    """Answers of the successes of one step.

    `lengths`: In `unit`: tokens where the service counts them, else bytes; empty when unknown.
    `texts`: How many answers have the same checksum, the most frequent first; empty when unknown.
    `fresh_p50_s`, `repeated_p50_s`: Median runtime of prompts sent for the first time and of repeated ones; null
    unless they differ clearly.
    """

    lengths: Floats
    unit: str | None
    texts: Counter[int]
    bytes_by_text: dict[int, int]
    fresh_p50_s: float | None = None
    repeated_p50_s: float | None = None

    @property
    def median(self) -> float | None:
        """Median length; null when unknown."""
        return float(np.median(self.lengths)) if len(self.lengths) else None


def profile_answers(counted: pl.DataFrame, sent: pl.DataFrame, again: pl.Series) -> AnswerProfile:
    """Profile of the kept successes; `again` says of all requests sent whether their prompt was sent before.

    `sent`, `counted`: Requests of a step, all and those after warm-up, with the columns of table REQUESTS.
    """
    successes = counted.filter(counted["outcome"] == "ok")
    unit = next((unit for unit in ("tokens", "bytes") if _has_unit(successes, unit)), None)
    lengths = successes[_COLUMNS[unit]].drop_nulls().to_numpy().astype(np.float64) if unit else np.empty(0)
    pairs = successes.select("answer_hash", "answer_bytes").drop_nulls().rows()
    fresh, repeated = _compare_repeated(sent, again)
    return AnswerProfile(lengths, unit, Counter(text for text, _ in pairs), dict(pairs), fresh, repeated)


def _has_unit(successes: pl.DataFrame, unit: str) -> bool:
    return successes.height > 0 and successes[_COLUMNS[unit]].null_count() <= MAX_UNKNOWN_FRACTION * successes.height


def _compare_repeated(sent: pl.DataFrame, again: pl.Series) -> tuple[float | None, float | None]:
    """Median seconds of first and of repeated prompts; null unless the repeated ones are clearly faster (rank test).

    `sent`: Requests of a step. `again`: For each, whether its prompt was sent before.
    """
    is_success = (sent["outcome"] == "ok") & ~sent["tail"]
    fresh = sent.filter(is_success & ~again)["runtime_s"].drop_nulls().to_numpy()
    repeated = sent.filter(is_success & again)["runtime_s"].drop_nulls().to_numpy()
    if min(len(fresh), len(repeated)) < MIN_COMPARED:
        return None, None
    before, after = float(np.median(fresh)), float(np.median(repeated))
    if after >= CACHE_FACTOR * before:
        return None, None
    return (before, after) if rank_difference_z(repeated, fresh) > N_STANDARD_ERRORS else (None, None)


def find_other_answers(table: pl.DataFrame, profiles: dict[int, AnswerProfile], max_ratio: float) -> Verdicts:
    """Steps whose answers are not those of the lowest load: much shorter or longer, or one text again and again.

    Loads are compared on the same GPUs and in the same unit: half a request a second is no lower load than four users.

    `table`: Table POINTS. `profiles`: Answers of each step. Returns: New verdict and reason by step.
    """
    differences: Verdicts = {}
    for _, same in table.sort("load", "step").group_by("gpus", "load_unit", maintain_order=True):
        rows = same.select("step", "load", "verdict").rows()
        rows = [(step, load) for step, load, verdict in rows if verdict not in FAILING_VERDICTS]
        candidates = [(step, load) for step, load in rows if len(profiles[step].lengths) >= MIN_ANSWERS]
        if not candidates:
            continue
        lowest = profiles[candidates[0][0]]
        for step, _ in candidates[1:]:
            if text := describe_other_answers(profiles[step], lowest, max_ratio):
                differences[step] = ("other answers", f"{text} at the lowest load of {candidates[0][1]:g}")
    return differences


def describe_other_answers(profile: AnswerProfile, lowest: AnswerProfile, max_ratio: float) -> str | None:
    """Describe how answers differ from those of the lowest load; null unless by more than `max_ratio` and chance."""
    return _find_other_length(profile, lowest, max_ratio) or _find_one_text(profile, lowest, max_ratio)


def _find_other_length(profile: AnswerProfile, lowest: AnswerProfile, max_ratio: float) -> str | None:
    usual, here = lowest.median, profile.median
    if profile.unit != lowest.unit or not usual or here is None:
        return None
    # Of two kinds of requests that are about as frequent, chance decides which one's length is the median.
    is_other = abs(rank_difference_z(profile.lengths, lowest.lengths)) > N_STANDARD_ERRORS
    if is_other and (here * MAX_LENGTH_FACTOR < usual or here > MAX_LENGTH_FACTOR * usual):
        return f"answers of {here:.4g} {profile.unit} (median), {usual:.4g}"
    short = usual / MAX_LENGTH_FACTOR
    if _exceeds(profile.lengths < short, lowest.lengths < short, max_ratio):
        share, before = np.mean(profile.lengths < short), np.mean(lowest.lengths < short)
        return f"{100 * share:.1f} % of the answers are shorter than {short:.4g} {profile.unit}, {100 * before:.1f} %"
    long = usual * MAX_LENGTH_FACTOR
    if _exceeds(profile.lengths > long, lowest.lengths > long, MAX_LONG_EXCESS):
        share, before = np.mean(profile.lengths > long), np.mean(lowest.lengths > long)
        return f"{100 * share:.1f} % of the answers are longer than {long:.4g} {profile.unit}, {100 * before:.1f} %"
    return None


def _exceeds(here: Any, before: Any, allowed: float, n_errors: float = N_STANDARD_ERRORS) -> bool:
    """Whether a fraction grew by more than is allowed, and by more than a number of standard errors."""
    share, old = float(np.mean(here)), float(np.mean(before))
    error = np.sqrt(share * (1 - share) / len(here) + old * (1 - old) / len(before))
    return bool(share - old - n_errors * error > allowed)


def _find_one_text(profile: AnswerProfile, lowest: AnswerProfile, max_ratio: float) -> str | None:
    n, before = profile.texts.total(), lowest.texts.total()
    if min(n, before) < MIN_ANSWERS:
        return None
    text, count = profile.texts.most_common(1)[0]
    old = lowest.texts[text]
    here, then = np.arange(n) < count, np.arange(before) < old
    # A text that never came at the lowest load needs less evidence than one that came more often.
    if not _exceeds(here, then, max_ratio, N_STANDARD_ERRORS if old else N_ERRORS_OF_NEW_TEXT):
        return None
    size, share = f"{profile.bytes_by_text[text]} bytes", f"{100 * old / before:.1f} %"
    return f"{100 * count / n:.1f} % of the answers are one text of {size}, {share}"


@dataclass(frozen=True)
class ProbeCounts:
    """Probes of one or more levels, and those that were answered rightly."""

    n: int = 0
    n_right: int = 0

    @classmethod
    def read_points(cls, points: Iterable[Mapping[str, Any]]) -> ProbeCounts:
        """Those of all these levels, rows of table POINTS."""
        counts = [(point["n_probed"], point["right_share"]) for point in points if point["n_probed"]]
        return cls(sum(n for n, _ in counts), sum(round(n * share) for n, share in counts))

    def describe_fall(self, usual: ProbeCounts) -> str | None:
        """How these are right less often than usual, beyond chance by Fisher's exact test; null if they are not."""
        # Loading the test takes a third of a second, and nearly always nothing has fallen.
        if not self.n or not usual.n or self.n_right * usual.n >= usual.n_right * self.n:
            return None
        from scipy.stats import fisher_exact

        counts = [[self.n_right, self.n - self.n_right], [usual.n_right, usual.n - usual.n_right]]
        if fisher_exact(counts, alternative="less").pvalue >= MAX_CHANCE_OF_WRONG:
            return None
        shares = (100 * self.n_right / self.n, 100 * usual.n_right / usual.n)
        return f"{shares[0]:.3g} % of {self.n} probes are right, {shares[1]:.3g} % of {usual.n}"


def find_wrong_steps(table: pl.DataFrame) -> Verdicts:
    """Steps whose probes are answered rightly less often than at the lower loads together.

    `table`: Table POINTS. Returns: New verdict and reason by step.
    """
    found: Verdicts = {}
    for _, same in table.sort("load", "step").group_by("gpus", "load_unit", maintain_order=True):
        usual = ProbeCounts()
        for point in same.iter_rows(named=True):
            here = ProbeCounts.read_points([point])
            if text := here.describe_fall(usual):
                found[point["step"]] = ("other answers", f"{text} at the lower loads")
            else:
                usual = ProbeCounts(usual.n + here.n, usual.n_right + here.n_right)
    return found


def find_cached_steps(table: pl.DataFrame, profiles: dict[int, AnswerProfile], min_repeated: float) -> Verdicts:
    """Steps with repeated prompts, where some step shows that those are answered faster than new ones.

    `table`: Table POINTS. `profiles`: Answers of each step. Returns: New verdict and reason by step.
    """
    shown = [
        profile
        for profile in profiles.values()
        if profile.fresh_p50_s is not None and profile.repeated_p50_s is not None
    ]
    if not shown:
        return {}
    clear = max(shown, key=lambda profile: (profile.fresh_p50_s or 0) / (profile.repeated_p50_s or 1))
    text = (
        f"of the prompts were sent before, and a cache answers those: median {clear.repeated_p50_s:.3g} s, new ones "
        f"{clear.fresh_p50_s:.3g} s; measure with more prompts, or --unique-prefix"
    )
    rows = table.select("step", "repeated_prompts").rows()
    return {step: ("cached", f"{100 * share:.0f} % {text}") for step, share in rows if share > min_repeated}
