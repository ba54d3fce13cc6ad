"""The calculator from Python: over recorded jobs, or over a workflow that is run here or served at an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from workbench.errors import InputError
from workbench.sizing.calculator import calcfile, calcjob
from workbench.sizing.calculator.calc_options import Options, checked
from workbench.sizing.calculator.calcfile import SizingMetrics
from workbench.sizing.calculator.calculation import Calculation, Goal, calculated, listed
from workbench.sizing.slope import RULES, FitRules

if TYPE_CHECKING:
    import altair as alt
    import polars as pl


@dataclass
class Calculated:
    """What a calculation gave: the toolkit's document, tables, charts, where it was written."""

    calculation: Calculation
    folder: Path | None = None
    paths: list[Path] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> calcfile.CalcOutput:
        """What `calc_runner_output.json` holds."""
        return self.calculation.output

    @property
    def exit_code(self) -> int:
        """0 answered; 1 the levels give no line, or were stopped; 2 the line cannot answer what was asked."""
        return max(self.calculation.exit_code, int(bool(self.facts.get("stopped"))))

    @cached_property
    def levels(self) -> pl.DataFrame:
        """Measured levels: table `calc_levels`."""
        from workbench.sizing.calculator import calc_frames

        return calc_frames.levels(self.calculation)

    @cached_property
    def fits(self) -> pl.DataFrame:
        """Lines, or why there are none: table `calc_fits`."""
        from workbench.sizing.calculator import calc_frames

        return calc_frames.fits(self.calculation)

    @cached_property
    def estimates(self) -> pl.DataFrame:
        """GPUs for each target, or why there is no number: table `calc_estimates`."""
        from workbench.sizing.calculator import calc_frames

        return calc_frames.estimates(self.calculation)

    @cached_property
    def charts(self) -> dict[str, alt.TopLevelMixin]:
        """Altair charts by the names of the pictures."""
        from workbench.sizing.calculator import calc_charts

        return {name: calc_charts.chart(spec) for name, spec in calc_charts.specs(self.calculation).items()}

    def __repr__(self) -> str:
        from workbench.sizing.calculator import calc_table

        return "\n".join(calc_table.lines(self.calculation))

    def document(self) -> dict[str, Any]:
        """Everything as plain values, for `--json` and the notes."""
        result = self.calculation
        return {
            "goal": vars(result.goal),
            "answers": [vars(answer) for answer in result.answers],
            "left_out": {str(number): why for number, why in result.left_out.items()},
            "no_line": {metric: fit.reason for metric, fit in result.fits.items() if fit.reason},
            "notices": self.notices,
            **self.facts,
        }


def run(options: Options, *, report: Callable[[str], None] | None = None) -> Calculated:
    """Calculate as the options say; `report` is told how far an online run is.

    Raises
    ------
    ConfigError
        Options that do not go together; the toolkit is needed and not there.
    InputError
        A file, a dataset or a folder that cannot be used.
    RunFailedError
        The toolkit's process died.
    """
    checked(options)
    if not options.offline:
        from workbench.sizing.calculator.calc_online import run_online

        return run_online(options, report or _silent)
    assert options.output_dir is not None
    found = calcfile.recorded(options.output_dir)
    done = Calculated(calculated(found.metrics, options.goal, options.rules), notices=list(found.notices))
    done.notices += [*_mixed(found), *done.calculation.notices]
    done.facts = {"mode": "offline", "source": {str(number): job for number, job in found.source.items()}}
    if options.write:
        done.folder = calcjob.new_folder(options.output_dir, "offline")
        keep(done, options, "offline")
    return done


def keep(done: Calculated, options: Options, mode: calcjob.Mode) -> None:
    """Write the job into its folder, and tell or remove the older ones; a job without a use replaces none."""
    from workbench import __version__

    assert done.folder is not None
    assert options.output_dir is not None
    older = [job for job in calcfile.job_folders(options.output_dir / mode) if job != done.folder]
    poor = "was stopped" if done.facts.get("stopped") else "" if done.calculation.used else "has no usable level"
    if older and options.remove_older and poor:
        done.notices.append(f"{len(older)} older {mode} job(s) kept all the same: this one {poor}")
    if older and not options.remove_older:
        done.notices.append(
            f"{len(older)} older {mode} job(s) kept (--remove_older_jobs removes them, as the toolkit does)"
        )
    written_at = datetime.now(UTC).isoformat(timespec="seconds")
    notes = {"workbench": __version__, "written_at": written_at, **done.document()}
    done.paths = calcjob.write(done.folder, done.calculation, notes=notes, plots=options.plots)
    if options.remove_older and not poor and (removed := calcjob.remove_older(done.folder, older)):
        done.notices.append(f"removed {len(removed)} older {mode} job(s), as asked")


def from_levels(
    levels: Mapping[int, SizingMetrics | Mapping[str, Any]], goal: Goal, rules: FitRules = RULES
) -> Calculated:
    """Calculate from levels in memory; nothing is read or written.

    Raises
    ------
    InputError
        A level's fields are of another type.
    """
    try:
        metrics = {int(number): SizingMetrics.model_validate(level) for number, level in levels.items()}
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError("a level's field of another type", where=where, allowed=first["msg"]) from error
    if beyond := [number for number in metrics if abs(number) > calcfile.LARGEST_LOAD]:
        allowed = f"at most {calcfile.LARGEST_LOAD:,}"
        raise InputError("no service has that load", where="levels", found=listed(beyond), allowed=allowed)
    result = calculated(metrics, goal, rules)
    return Calculated(result, notices=list(result.notices), facts={"mode": "memory"})


def _mixed(found: calcfile.Recorded) -> list[str]:
    """Which level is whose, when levels of several jobs make one line."""
    jobs = list(dict.fromkeys(found.source.values()))
    if len(jobs) < 2:
        return []
    parts = [f"{listed([n for n, of in found.source.items() if of == job])} of {job}" for job in jobs]
    return [
        f"levels of {len(jobs)} jobs make one line, the newest job's where several have a level: {'; '.join(parts)}"
    ]


def _silent(line: str) -> None:
    """Say nothing."""
    del line
