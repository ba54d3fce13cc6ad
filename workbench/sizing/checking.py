"""An answer verified on the service: one more step, at the load that was predicted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import runs
from workbench.errors import ConfigError
from workbench.sizing import keeping
from workbench.sizing.answering import Answer
from workbench.sizing.config import Goal, SweepConfig
from workbench.sizing.driving import journal, sweep
from workbench.sizing.points import Limits
from workbench.sizing.verifying import SCOPES, loads_per_test, of_sweep

if TYPE_CHECKING:
    import polars as pl

LONGER = 4
"""How many times the samples and the time of a step a verification may take: the prediction lies near the limit."""
FOLDER = "verification"
DRAWS = 500


@dataclass(frozen=True)
class Verified:
    """The table `verification`, and why the driving ended: finished, interrupted, limit."""

    table: pl.DataFrame
    ended: str


def verify(
    folder: Path,
    *,
    url: str | None = None,
    gpus: int | None = None,
    predicted: int | None = None,
    target_confirm: str | None = None,
    limits: Mapping[str, Any] | None = None,
    watcher: sweep.Watcher | None = None,
) -> Verified:
    """Drive the predicted load and judge it; the table `verification`, kept in the sweep's folder.

    Parameters
    ----------
    folder
        A sweep with an estimate.
    url, gpus
        Where to drive, and how many GPUs serve there; those of the sweep by default.
    predicted
        The count to verify; the recommended one by default.
    limits
        Any of `sweep.LIMIT_NAMES`, instead of the sweep's. All are on the sweep and its verifications together.

    Raises
    ------
    ConfigError
        There is no recommended count and none is given, the settings do not fit, or nobody listens there.
    InputError
        There is no sweep, or nothing was estimated.
    """
    kept, config = journal.resume(folder)
    estimates = keeping.estimated(folder)
    count = predicted or _recommended(estimates)
    goals = [Goal(metric=row["metric"], q=row["q"], limit_s=row["limit_s"]) for row in estimates.iter_rows(named=True)]
    load, served = float(estimates["load"][0]), gpus or config.gpus
    loads = [load] if served == count else loads_per_test(load, count, served, whole=not config.is_open)
    earlier = runs.find(folder / FOLDER)
    settings = config.model_dump(mode="python", exclude_defaults=True) | longer(config, loads, len(earlier))
    settings |= {"goals": goals, "gpus": served}
    settings |= {name: value for name, value in (("url", url), ("target_confirm", target_confirm)) if value}
    settings |= {name: value for name, value in (limits or {}).items() if value is not None}
    before = kept.spent()
    for one in earlier:
        before = before.plus(journal.resume(one.folder)[0].spent())
    found = sweep.run(out=folder / FOLDER, watcher=watcher, needs_listener=True, before=before, **settings)
    judged = Limits(config.max_error_ratio, config.least_samples)
    table = of_sweep(found, goals, predicted_gpus=count, load=load, limits=judged)
    keeping.keep_verification(table, folder)
    return Verified(table, found.ended)


def answered(
    folder: Path,
    load: keeping.Load,
    *,
    price: float | None = None,
    verified: bool = False,
    watcher: sweep.Watcher | None = None,
) -> tuple[Answer, str]:
    """The answer of a sweep that has just ended, verified on the same service if that is wanted; kept in its folder.

    Beside it why the driving of the verification ended; finished without one.
    """
    found = keeping.estimate([folder], load, None, price, DRAWS, 0)
    if not verified or found.recommended is None:
        return found, "finished"
    done = verify(folder, watcher=watcher)
    return found.verified(done.table), done.ended


def text(found: pl.DataFrame, folder: Path) -> str:
    """The verdicts for people."""
    lines = []
    for row in found.iter_rows(named=True):
        simulated = "simulated: " if row["simulated"] else ""
        values = "beyond all answers" if row["n"] else "nothing was driven"
        values = f"{row['value_s']:.4g} s" if row["value_s"] is not None else values
        ends = f" [{_end(row['low_s'])}, {_end(row['high_s'])}]" if row["value_s"] is not None else ""
        lines.append(f"{row['verdict'].upper()}: {simulated}{row['target']}: {values}{ends}, n = {row['n']}")
        if row["reason"]:
            lines.append(f"  {row['reason']}")
    first = found.row(0, named=True)
    unit = "users" if first["load_unit"] == "users" else "requests a second"
    gpus = "1 GPU" if first["gpus"] == 1 else f"{first['gpus']} GPUs"
    lines.append(f"{first['driven_load']:g} {unit} on {gpus}: {SCOPES[first['scope']]}")
    return "\n".join([*lines, f"written: {folder}"])


def as_json(found: pl.DataFrame, folder: Path) -> str:
    """The verdicts as one JSON document."""
    return json.dumps({"folder": str(folder), "verification": found.to_dicts()}, indent=1)


def _recommended(estimates: pl.DataFrame) -> int:
    counts = estimates["recommended"]
    if not len(counts) or counts.null_count():
        raise ConfigError(
            "no recommended count to verify", do="give --predicted N, or measure what the estimate asks for"
        )
    return int(str(counts.max()))


def longer(config: SweepConfig, loads: list[float], earlier: int = 0) -> dict[str, Any]:
    """The settings in which a verification differs from its sweep: these levels, held longer, and other prompts.

    With the sweep's own seed, or that of one of the `earlier` verifications, it would meet a cache that knows them.
    """
    levels = {"rates": loads} if config.is_open else {"users": [int(load) for load in loads]}
    return levels | {
        "most_samples": LONGER * config.most_samples,
        "max_step_s": LONGER * config.max_step_s,
        "tight": config.tight / 2,
        "seed": (config.seed + 1 + earlier) % 2**63,
    }


def _end(value: float | None) -> str:
    return "open" if value is None else f"{value:.4g}"
