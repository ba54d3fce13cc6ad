"""The few numbers below an answer."""

from __future__ import annotations

import polars as pl

from workbench.display import KeyNumber
from workbench.formats import number, seconds
from workbench.scaletest.analysing import Analysis
from workbench.scaletest.limits import CLIENT_LIMIT
from workbench.scaletest.sides import Sides

# A headline takes no more.
MOST = 6


def of_sides(found: Sides, comparison: pl.DataFrame) -> list[KeyNumber]:
    """The comparison at the median, each side's sustained rate, what held it up, gangs, p95; as many as fit.

    Figures of one kind are given for all sides that have them, or for none.
    """
    held = {
        row["client"] for _, one in found.everything for row in one.limits.to_dicts() if row["kind"] == CLIENT_LIMIT
    }
    groups: list[list[KeyNumber]] = [
        _comparison(found, comparison),
        [one for name in found.names for one in _sustained(found, name)],
        [("held by a client limit", len(held), "clients", ", ".join(sorted(held)))] if held else [],
        [
            (f"{name}: whole gangs", *_gangs(found.runs[name]))
            for name in found.names
            if any(one.gangs.height for one in found.runs[name])
        ],
        _tails(found),
    ]
    numbers: list[KeyNumber] = []
    for group in groups:
        numbers += group if len(numbers) + len(group) <= MOST else []
    return numbers


def _comparison(found: Sides, comparison: pl.DataFrame) -> list[KeyNumber]:
    """How many times as long one side takes at the median, and what that says of the second side."""
    own = comparison.filter((pl.col("step") == found.total[0]) & (pl.col("quantile") == 0.5))
    if not own.height or own["ratio"][0] is None:
        return []
    a, b = found.names[:2]
    row = own.row(0, named=True)
    above, below = (a, b) if row["ratio"] >= 1 else (b, a)
    ratio, *ends = (
        value if value is None or above == a else 1 / value for value in (row["ratio"], row["low"], row["high"])
    )
    interval = f"[{', '.join(number(end) for end in sorted(ends))}]" if row["low"] is not None else "no interval"
    verdict = {
        "FASTER": f"{b} is faster",
        "SLOWER": f"{b} is slower",
        "SAME": "the same within 5 %",
        "UNDECIDED": "undecided",
    }[row["verdict"]]
    return [(f"median, {above} over {below}", ratio, "", f"{interval}, {verdict}")]


def _sustained(found: Sides, name: str) -> list[KeyNumber]:
    rate = found.runs[name][0].sustainable
    if rate.low_per_s is None:
        return []
    high = "or more" if rate.high_per_s is None else f"to {number(rate.high_per_s)}"
    return [(f"{name}: sustains", rate.low_per_s, "pods/s", f"{high}, in its first run" if _several(found) else high)]


def _several(found: Sides) -> bool:
    return any(len(runs) > 1 for runs in found.runs.values())


def _tails(found: Sides) -> list[KeyNumber]:
    """p95 of each side; the median where no side came as far."""
    tails = {name: _quantile(found, name, 0.95) for name in found.names}
    medians = {name: _quantile(found, name, 0.5) for name in found.names}
    share, shown = ("p95", tails) if any(one[0] is not None for one in tails.values()) else ("median", medians)
    return [(f"{name}: {share}", *rest) for name, rest in shown.items()]


def _quantile(found: Sides, name: str, share: float) -> tuple[float | None, str, str]:
    step, clock = found.total
    values = [one.quantile(step, share, clock) for one in found.runs[name]]
    known = sorted(value for value in values if value is not None)
    runs = len(values)
    if len(known) < runs:
        some = f"more than {100 * (1 - share):g} % of its workloads never got there"
        return None, "s", some if runs == 1 else f"{some} in {runs - len(known)} of {runs} runs"
    spread = "" if runs == 1 else f"; middle of {runs} runs, from {seconds(known[0])} to {seconds(known[-1])}"
    return known[len(known) // 2], "s", f"{step}{spread}"


def _gangs(runs: tuple[Analysis, ...]) -> tuple[float, str, str]:
    whole = sum(int(one.gangs["complete"].sum()) for one in runs)
    partial = sum(one.gangs.filter(~pl.col("complete") & (pl.col("scheduled") > 0)).height for one in runs)
    return whole, f"of {sum(one.gangs.height for one in runs)}", f"{partial} held GPUs and never got the rest"
