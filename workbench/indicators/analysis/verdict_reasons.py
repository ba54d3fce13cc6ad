"""Why a comparison is undecided, in words, and how many rounds would likely decide it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.indicators.analysis.machine_load import describe_load
from workbench.stats import MAX_PAIRS, Interval, count_required_pairs, decide_beyond
from workbench.stats.verdicts import DIFFERENT


def reach_percent(interval: Interval) -> float | None:
    """Largest difference that the interval allows, in percent; null without one.

    >>> round(reach_percent(Interval(1.0, 0.8, 1.1, 0.95, 10, "")), 6)
    25.0
    """
    if interval.low is None or interval.high is None:
        return None
    return 100 * (max(interval.high, 1 / interval.low) - 1)


def is_told_apart(control: Interval | None, margin: float) -> bool:
    """Whether the two copies of the baseline differ beyond the margin."""
    return control is not None and decide_beyond([control], [margin])[0].verdict in DIFFERENT


def find_obstacle(control: Interval | None, margin: float, *, diluted: bool) -> str | None:
    """What forbids SAME although the interval lies within the margin; null if nothing does.

    `control` is null where there is none: then the whole session is invalid.
    """
    if diluted:
        return "CPU time is of whole runs, in which a difference of the measured part is diluted"
    if control is None:
        return None
    reach = reach_percent(control)
    if reach is None:
        return "the control has no interval"
    if reach > 100 * margin * (1 + 1e-9):
        return f"the control, the same stack twice, is uncertain to ±{format_percent(reach)}, beyond the margin"
    return None


def count_rounds(limit: Interval, margin: float, family: int, interval: Interval) -> int | None:
    """Rounds after which the interval that limits the verdict would likely decide; null when unknown or too many."""
    needed = count_required_pairs(limit, margin, family)
    return None if needed is None else max(needed, interval.n + 1)


def explain(
    interval: Interval, margin: float, *, obstacle: str | None, load: Mapping[str, Any], rounds: int | None
) -> str:
    """Why a row is undecided: what limits it, what the machine did, and how many rounds would tell."""
    reach = reach_percent(interval)
    if obstacle is not None:
        parts = [obstacle]
    elif reach is None:
        parts = [interval.reason or "no interval"]
    else:
        parts = [f"the interval reaches ±{format_percent(reach)}, the margin is {100 * margin:.2g} %"]
    parts += describe_load(dict(load))
    if rounds is not None:
        parts.append(f"about {rounds} rounds would likely decide")
    elif reach is not None and obstacle is None:
        parts.append(f"more than {MAX_PAIRS:,} rounds would be needed, or the ratio lies at the margin")
    return "; ".join(parts)


def format_percent(value: float) -> str:
    """A percentage with one digit below 10, none above.

    >>> format_percent(2.345), format_percent(26.2)
    ('2.3 %', '26 %')
    """
    return f"{value:.{1 if value < 10 else 0}f} %"
