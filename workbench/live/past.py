"""The runs of a notebook as a table to choose from, and what one of them was set to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import notebooks, parameters, runs
from workbench.formats import duration, moment

if TYPE_CHECKING:
    import polars as pl

ANSWER_CHARS = 300


def table(found: Sequence[runs.Run]) -> pl.DataFrame:
    """One row a run, newest first: `when`, `status`, `verdict` (null without one), `took`, `answer` (null), `run`."""
    import polars as pl

    names = ("when", "status", "verdict", "took", "answer", "run")
    rows = [
        (
            moment(str(run.record["started_at"])),
            run.state + (", by hand" if run.record.get("command") == "live" else ""),
            run.verdict,
            duration(_seconds(run)),
            (run.answer or _failure(run) or "")[:ANSWER_CHARS] or None,
            run.run_id,
        )
        for run in found
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()), orient="row")


def _seconds(run: runs.Run) -> float | None:
    took = run.record.get("duration_s")
    return took if isinstance(took, int | float) and not isinstance(took, bool) else None


def _failure(run: runs.Run) -> str | None:
    failure = run.record.get("failure")
    return f"{failure.get('error_name')}: {failure.get('error')}".split("\n")[0] if isinstance(failure, dict) else None


def settings(run: runs.Run, known: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What a run was set to, of the names that the notebook knows now; and the names that it no longer knows."""
    config = run.record.get("config")
    config = config if isinstance(config, dict) else {}
    return {name: config[name] for name in known if name in config}, sorted({*config} - {*known})


def command(notebook: Path, defaults: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """The command line that runs the notebook with these values.

    Examples
    --------
    >>> command(Path("notebooks/01_speedup.ipynb"), {"top": 12, "mode": "pair"}, {"top": 5, "mode": "pair"})
    'workbench run 01_speedup -p top=5'
    """
    given = changed(defaults, values)
    return notebooks.Plan(notebook, None, parameters.Resolved(dict(values), given)).command


def changed(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that differ from the notebook's own."""
    return {name: value for name, value in values.items() if name not in defaults or defaults[name] != value}


def last_finished(found: Sequence[runs.Run]) -> runs.Run | None:
    """The newest run that came to its end."""
    return next((run for run in found if run.status == "succeeded"), None)
