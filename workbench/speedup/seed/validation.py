"""Estimates against what was measured, as the original's validation script prints it.

Its percentages divide by the estimate, not by what was measured; that is kept here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.errors import InputError
from workbench.speedup.seed.applications import SeedApplication
from workbench.speedup.seed.estimate import ApplicationEstimate
from workbench.speedup.seed.numbers import cut

RULE = "=" * 50
HEADS = (
    "",
    "App Name",
    "App Duration",
    "Estimated GPU Duration",
    "Estimated GPU Speedup",
    "GPU Duration",
    "Duration Error (sec)",
    "Duration Error (pct)",
    "GPU Speedup",
    "Speedup Error (abs)",
    "Speedup Error (pct)",
)


@dataclass(frozen=True)
class Comparison:
    """One application, estimated and measured; percentages are of the estimate."""

    name: str
    duration_ms: int
    estimated_ms: float
    estimated_speedup_ratio: float
    measured_ms: int
    duration_error_s: float
    duration_error_percent: float
    measured_speedup_ratio: float
    speedup_error_ratio: float
    speedup_error_percent: float


def compare(estimates: Sequence[ApplicationEstimate], measured: Sequence[SeedApplication]) -> list[Comparison]:
    """Set every estimate beside the accelerated run of the same application name.

    Raises
    ------
    InputError
        A name comes twice on a side (the original multiplies them), or no name is on both sides.
    """
    names = [one.log.app_name for one in estimates]
    times = {application.name: application.duration_ms for application in measured}
    for side, found in (("CPU", names), ("accelerated", [application.name for application in measured])):
        repeated = sorted({name for name in found if found.count(name) > 1})
        if repeated:
            raise InputError(
                f"application names come twice on the {side} side: they cannot be told apart",
                where="App Name",
                found=repeated,
                do="give one log per application name",
            )
    rows = [_row(one, times[one.log.app_name]) for one in estimates if one.log.app_name in times]
    if not rows:
        raise InputError(
            "no application is on both sides: the seed method pairs them by name",
            where="App Name",
            found=f"CPU side {sorted(names)}, accelerated side {sorted(times)}",
            do="give both runs the same spark.app.name",
        )
    return rows


def _row(one: ApplicationEstimate, measured_ms: int) -> Comparison:
    # Two decimals, cut off: the original reads them from the qualification tool's file.
    estimated, speedup = cut(one.estimate.estimated_ms), cut(one.estimate.speedup_ratio)
    if measured_ms <= 0 or estimated <= 0 or speedup <= 0:
        raise InputError("a duration is not above 0", where=one.log.where, found=f"{estimated} ms, {measured_ms} ms")
    ratio = round(one.estimate.duration_ms / measured_ms, 2)
    return Comparison(
        one.log.app_name,
        one.estimate.duration_ms,
        estimated,
        speedup,
        measured_ms,
        (estimated - measured_ms) / 1000.0,
        round(100.0 * (estimated - measured_ms) / estimated, 2),
        ratio,
        speedup - ratio,
        round(100.0 * (speedup - ratio) / speedup, 2),
    )


def report(rows: Sequence[Comparison]) -> str:
    """The table and the 26 lines of errors, as the original prints them."""
    lines = [RULE, "              Application Details", RULE, *_table(rows)]
    duration = [row.duration_error_s for row in rows]
    lines += [RULE, "            Duration Error Metrics ", RULE]
    lines += _lines(DURATION_LINES, duration, [row.duration_error_percent for row in rows])
    speedup = [row.speedup_error_ratio for row in rows]
    lines += [RULE, "            Speedup Error Metrics ", RULE]
    lines += _lines(SPEEDUP_LINES, speedup, [row.speedup_error_percent for row in rows])
    return "\n".join(lines) + "\n"


# Labels as the original has them, one parenthesis missing and one blank too many included.
DURATION_LINES = (
    "Average duration error (seconds)  = ",
    "Median duration error (seconds)   = ",
    "Min duration error (seconds)      = ",
    "Max duration error (seconds)      = ",
    "Average duration error (diff pct) = ",
    "Median duration error (diff pct)  = ",
    "Max duration error (diff pct)     = ",
    "Average duration error (diff sec) = ",
    "Median duration error (diff sec)  = ",
    "Max duration error (diff sec)     = ",
    "Average duration error (abs pct)  = ",
    "Median duration error (abs pct)   = ",
    "Max duration error (abs pct)      = ",
)
SPEEDUP_LINES = (
    "Average speedup error (diff)      = ",
    "Median speedup error (diff)       = ",
    "Min speedup error (diff)          = ",
    "Max speedup error (diff)          = ",
    "Average speedup error (diff pct)  = ",
    "Median speedup error (diff pct    = ",
    "Max speedup error (diff pct)      = ",
    "Average speedup error (abs diff)  = ",
    "Median speedup error (abs diff)   = ",
    "Max speedup error (abs diff)      = ",
    "Average speedup error (abs pct)   = ",
    "Median speedup error (abs pct)    = ",
    "Max speedup error (abs pct)         = ",
)


def _lines(labels: Sequence[str], errors: list[float], percents: list[float]) -> list[str]:
    central: list[Callable[[list[float]], float]] = [_mean, _median]
    largest: Callable[[list[float]], float] = max
    smallest: Callable[[list[float]], float] = min
    signed = [*central, smallest, largest]
    unsigned = [*central, largest]
    figures = [get(errors) for get in signed] + [get(percents) for get in unsigned]
    figures += [get([abs(value) for value in values]) for values in (errors, percents) for get in unsigned]
    return [label + str(float(round(figure, 2))) for label, figure in zip(labels, figures, strict=True)]


def _mean(values: list[float]) -> float:
    """As numpy's number, which rounds in another way than Python's: so did the original, here and in the median."""
    return np.float64(sum(values) / len(values))


def _median(values: list[float]) -> float:
    return np.float64(np.median(values))


def _table(rows: Sequence[Comparison]) -> list[str]:
    """A table in the style `psql` of the library that the original prints with: six digits, decimal points aligned."""
    columns: list[list[str]] = [[str(number) for number in range(len(rows))]]
    for name in Comparison.__dataclass_fields__:
        values = [getattr(row, name) for row in rows]
        columns.append(_aligned(values) if not isinstance(values[0], str) else values)
    widths = [max(len(head) + 2, *map(len, column)) for head, column in zip(HEADS, columns, strict=True)]
    edge = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    below = "|" + "+".join("-" * (width + 2) for width in widths) + "|"
    body = [_line([column[number] for column in columns], widths) for number in range(len(rows))]
    return [edge, _line(HEADS, widths), below, *body, edge]


def _aligned(values: list[float]) -> list[str]:
    texts = [str(value) if isinstance(value, int) else format(value, "g") for value in values]
    places = [_places(text) for text in texts]
    return [text + " " * (max(places) - place) for text, place in zip(texts, places, strict=True)]


def _places(text: str) -> int:
    """Characters behind the decimal point (or exponent); -1 where there is none."""
    at = text.rfind(".") if "." in text else text.rfind("e")
    return len(text) - at - 1 if at >= 0 else -1


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = [
        cell.ljust(width) if number == 1 else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(shown) + " |"
