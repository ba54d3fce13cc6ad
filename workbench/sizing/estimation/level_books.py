"""Books of a sweep: accounts of its requests, loads and tokens that must balance before its answer is valid."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import polars as pl

from workbench.core.books import AT_MOST, Book, build_books
from workbench.sizing.estimation.step_points import name_load_unit
from workbench.sizing.tables import OUTCOMES, USABLE_VERDICTS

# Requests at both ends of the window make the two sides of Little's law differ in short levels.
LITTLE_TOLERANCE = 0.15
MAX_UNHELD_SHARE = 0.05
MAX_RATE_GAIN = 0.15
"""By what share the rate may grow faster than the load between two levels; chosen, not derived."""
N_DEVIATIONS = 4


def build_level_books(requests: pl.DataFrame, steps: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Table BOOKS of the levels that an answer may rest on. Arguments: Tables REQUESTS, STEPS and POINTS."""
    usable = points.filter(points["verdict"].is_in(USABLE_VERDICTS)).sort("gpus", "load")
    step_rows = {row["step"]: row for row in steps.iter_rows(named=True)}
    several = points["gpus"].n_unique() > 1
    books: list[Book] = []
    levels: list[tuple[dict[str, Any], float]] = []  # with the relative error of the rate
    for point in usable.iter_rows(named=True):
        name = _name_level(point, several=several)
        sent = requests.filter(requests["step"] == point["step"])
        kept = sent.filter(~sent["tail"]).sort("request")[point["n_warmup"] :]
        times_s = (kept["ended_s"] - kept["sent_s"]).to_numpy()
        mean_s = float(times_s.mean()) if len(times_s) else None
        step = step_rows[point["step"]]
        # Relative standard error of the rate of users; think times are exponential.
        think_s = step["think_s"] or 0.0
        if not len(times_s):
            rate_error = 0.0
        else:
            cycle_s = float(times_s.mean()) + think_s
            deviation_s = float((times_s.var() + think_s**2) ** 0.5)
            rate_error = deviation_s / cycle_s / float(len(times_s)) ** 0.5 if cycle_s else 0.0
        levels.append((point, rate_error))
        books += [*_count_requests(name, point, sent), *_count_load(name, point, step, mean_s)]
        books += _count_tokens(name, sent)
    for (lower, error), (upper, upper_error) in itertools.pairwise(levels):
        if lower["gpus"] == upper["gpus"] and lower["load_unit"] == upper["load_unit"] == "users":
            name, noise = _name_level(upper, several=several), N_DEVIATIONS * (error**2 + upper_error**2) ** 0.5
            # More users never end more requests each: the service would be another one.
            max_gain = max(MAX_RATE_GAIN, noise)
            per_user = lower["rate_per_s"] / lower["load"]
            rates = Book(
                f"capacity at {name}",
                ("requests a second and user", upper["rate_per_s"] / upper["load"]),
                (f"those at {lower['load']:g} users", per_user),
                "capacity, GPU counts",
                "a service that changed between the levels, such as another replica",
                relation=AT_MOST,
                tolerance=max_gain * per_user,
            )
            books.append(rates)
    return build_books(books)


def _name_level(point: dict[str, Any], *, several: bool) -> str:
    unit = name_load_unit(point["load_unit"])
    return f"{point['load']:g} {unit}" + (f" on {point['gpus']} GPUs" if several else "") + f" (step {point['step']})"


def _count_requests(name: str, point: dict[str, Any], sent: pl.DataFrame) -> Iterator[Book]:
    """Each request that was sent is warm-up, kept or tail; each kept one ended in one way."""
    n_failed = sum(point[f"n_{kind}"] for kind in OUTCOMES[1:])
    yield Book(
        f"requests at {name}",
        ("requests sent", sent.height),
        ("warm-up, kept and tail", point["n_warmup"] + point["n_kept"] + int(sent["tail"].sum())),
        "counts and shares of failures",
        "requests that were counted twice or lost",
    )
    yield Book(
        f"ends at {name}",
        ("requests kept", point["n_kept"]),
        ("successes and failures", point["n_ok"] + n_failed),
        "shares of failures, quantiles",
        "a kind of failure that is not known",
    )


def _count_load(name: str, point: dict[str, Any], step: dict[str, Any], mean_s: float | None) -> Iterator[Book]:
    """Requests in flight by Little's law, from rate and mean time in service, and the load that was asked for."""
    in_flight = point["in_flight"]
    little = None if mean_s is None else point["rate_per_s"] * mean_s
    yield Book(
        f"Little's law at {name}",
        ("in flight by the client's count", in_flight),
        ("rate times mean time in service", little),
        "rate, capacity",
        "clocks that differ, or requests that are missing",
        tolerance=LITTLE_TOLERANCE * in_flight + 1,
    )
    if step["loop"] == "closed":
        yield Book(
            f"load of {name}",
            ("in flight by the client's count", in_flight),
            ("users of the level", point["load"]),
            "the name of the level, capacity",
            "more requests at once than the level says",
            relation=AT_MOST,
            tolerance=MAX_UNHELD_SHARE * point["load"],
        )
    elif point["offered_per_s"] is not None:
        chance = N_DEVIATIONS / max(1, point["n_kept"]) ** 0.5 if step["arrivals"] != "constant" else 0.0
        yield Book(
            f"load of {name}",
            ("requests due a second", point["offered_per_s"]),
            ("rate of the level", point["load"]),
            "the name of the level, capacity",
            "a trace whose part has another rate than the whole, or a tool that did not keep up",
            unit="1/s",
            tolerance=max(MAX_UNHELD_SHARE, chance) * point["load"],
        )


def _count_tokens(name: str, sent: pl.DataFrame) -> Iterator[Book]:
    """Tokens that were streamed are at most those that are counted for the answers."""
    both = sent.filter(sent["streamed_tokens"].is_not_null() & sent["output_tokens"].is_not_null())
    if both.height:
        yield Book(
            f"tokens at {name}",
            ("tokens streamed", float(both["streamed_tokens"].sum())),
            ("tokens counted", float(both["output_tokens"].sum())),
            "times between tokens, tokens a second, costs",
            "a count taken before the last token, or by another tokenizer",
            relation=AT_MOST,
        )
