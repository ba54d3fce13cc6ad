"""An imported result as a sweep's folder, like one that `workbench sizing run` made: estimates are made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.sizing import importing
from workbench.sizing.config import Goal, SweepConfig, sweep_config
from workbench.sizing.driving import journal as journals
from workbench.sizing.driving import toolkit_file
from workbench.sizing.driving.journal import StepNote
from workbench.sizing.importing.sweep import Imported, frames
from workbench.sizing.points import points
from workbench.sizing.tables import POINTS, QUANTILES, REQUESTS, STEPS

if TYPE_CHECKING:
    import polars as pl

USABLE = ("valid", "saturated", "few samples")


@dataclass(frozen=True)
class Kept:
    """An imported sweep: where it lies, its tables, and what it is worth."""

    imported: Imported
    folder: Path
    points: pl.DataFrame
    quantiles: pl.DataFrame
    answer: str
    usable: bool


def keep(
    path: Path,
    *,
    gpus: int,
    tool: str | None = None,
    goals: Sequence[Goal] = (),
    simulated: bool = False,
    out: Path | None = None,
) -> Kept:
    """Read a load tool's result and write it as a sweep.

    Parameters
    ----------
    path, tool
        As in `importing.read`.
    gpus
        GPUs that served it.
    goals
        What estimates aim at unless told otherwise.
    simulated
        The service was a simulator; found out by itself for the one of this workbench.
    out
        Folder below which the sweep gets its own.

    Raises
    ------
    InputError, ConfigError
        It cannot be read, or the folder cannot be made.
    """
    found = importing.read(path, tool)
    found.simulated = found.simulated or simulated
    requests, steps = frames(found, gpus)
    config = _config(found, steps, gpus, list(goals))
    told = {"made": False, "tool": found.tool, "version": found.version}
    journal = journals.create(config, out=out, keep=True, prompts=told, command="import")
    assert journal.run is not None
    journal.run.add_input(path)
    judged, quantiles = points(requests, steps)
    for table, frame in ((REQUESTS, requests), (STEPS, steps), (POINTS, judged), (QUANTILES, quantiles)):
        journal.run.write_table(table, frame)
    journal.requests, journal.steps = requests, steps
    journal.record.notes = [_note(requests, step) for step in steps["step"]]
    journal.finish()
    if config.users:
        toolkit_file.write(journal.run.folder, toolkit_file.calc_output(requests, steps, judged))
    usable = judged["verdict"].is_in(USABLE).any()
    kept = Kept(found, journal.run.folder, judged, quantiles, _answer(found, judged), usable)
    reasons = [] if usable else ["no level can be sized"]
    journal.run.conclude("invalid" if reasons else "valid", [*reasons, *found.notes], kept.answer)
    return kept


def _config(found: Imported, steps: pl.DataFrame, gpus: int, goals: list[Goal]) -> SweepConfig:
    """The settings that such a sweep would have had; a function's name says that nothing is driven again."""
    settings: dict[str, Any] = {
        "protocol": "function",
        "function": f"imported:{found.tool}",
        "gpus": gpus,
        "simulated": found.simulated,
        "goals": goals,
    }
    users = sorted(set(steps["users"].drop_nulls()))
    if users:
        settings["users"] = users
    else:
        # A trace would need its file; to a rate it comes down in the end.
        arrivals = steps["arrivals"][0]
        settings |= {"arrivals": "poisson" if arrivals == "trace" else arrivals}
        settings |= {"rates": sorted(set(steps["rate_per_s"].drop_nulls()))}
    limits = [limit_s for limit_s in steps["timeout_s"].drop_nulls() if limit_s > 0]
    if limits:
        settings["timeout_s"] = min(86_400.0, max(limits))
    return sweep_config(**settings)


def _note(requests: pl.DataFrame, step: int) -> StepNote:
    failed = requests.filter((requests["step"] == step) & (requests["outcome"] != "ok"))
    words = [
        kind if status is None else f"{kind} {status}" for kind, status in failed.select("outcome", "status").rows()
    ]
    return StepNote(step=step, failures=dict(Counter(words)))


def _answer(found: Imported, judged: pl.DataFrame) -> str:
    loads = [float(load) for load in judged["load"]]
    span = f"{min(loads):.4g}" if len(loads) == 1 else f"{min(loads):.4g} to {max(loads):.4g}"
    unit = {"users": "users", "1/s": "arrivals a second"}[judged["load_unit"][0]]
    levels = f"{len(loads)} level{'s' if len(loads) > 1 else ''} of {found.tool}, {span} {unit}"
    return f"{'simulated: ' if found.simulated else ''}{levels}"
