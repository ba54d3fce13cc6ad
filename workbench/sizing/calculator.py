"""The calculator from Python: over recorded jobs, or over a workflow that is run here or served at an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from workbench.errors import ConfigError, InputError
from workbench.sizing import calcfile, calcjob
from workbench.sizing.calcfile import SizingMetrics
from workbench.sizing.calculation import Calculation, Goal, calculated, listed
from workbench.sizing.slope import RULES, FitRules

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

CONCURRENCIES = tuple(range(1, 11))
MOST_LEVELS = 1_000
LARGEST_CONCURRENCY = 100_000
LONGEST_TIMEOUT_S = 86_400


@dataclass(frozen=True)
class Options:
    """What to calculate from, and what to leave behind; names follow the toolkit's flags where it has one.

    Parameters
    ----------
    output_dir
        Folder of the jobs: read from offline, written to in both modes unless `write` is false.
    goal
        Limits, users, GPUs.
    offline
        Calculate from the jobs in `output_dir` and run nothing.
    config_file
        The toolkit's YAML: workflow and eval section; online only.
    concurrencies
        Levels to run; None for 1 to 10. Offline all recorded levels count.
    num_passes
        Passes over the dataset at each level; 0 for one, over as many rows as fill the level.
    append
        Name the job with a random id, as the toolkit does when it keeps older ones. Here they are always kept.
    endpoint, endpoint_timeout_s
        URL of a running workflow instead of one that is started here; longest time of a request.
    target_confirm
        The endpoint's host once more, when it is not this machine.
    header_env
        Headers of its requests, each with the environment variable that holds its value.
    server_clock
        At an endpoint, take the server's events for the runtime, as the toolkit does, and not this client's clock.
    nat_python
        A Python that has the toolkit, when this one has not.
    seed
        Start of the shuffle that mixes the dataset's rows; None keeps their order.
    remove_older
        Remove older jobs of the mode once the new one is written: the toolkit's behaviour.
    write, plots
        Write a job folder; write the pictures, too.
    rules
        Outliers and the least R².
    """

    output_dir: Path | None = None
    goal: Goal = field(default_factory=Goal)
    offline: bool = False
    config_file: Path | None = None
    concurrencies: tuple[int, ...] | None = None
    num_passes: int = 0
    append: bool = False
    endpoint: str | None = None
    endpoint_timeout_s: float = 300.0
    target_confirm: str | None = None
    header_env: Mapping[str, str] = field(default_factory=dict)
    server_clock: bool = False
    nat_python: str | None = None
    seed: int | None = 0
    remove_older: bool = False
    write: bool = True
    plots: bool = True
    rules: FitRules = RULES


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
        from workbench.sizing import calc_frames

        return calc_frames.levels(self.calculation)

    @cached_property
    def fits(self) -> pl.DataFrame:
        """Lines, or why there are none: table `calc_fits`."""
        from workbench.sizing import calc_frames

        return calc_frames.fits(self.calculation)

    @cached_property
    def estimates(self) -> pl.DataFrame:
        """GPUs for each target, or why there is no number: table `calc_estimates`."""
        from workbench.sizing import calc_frames

        return calc_frames.estimates(self.calculation)

    @cached_property
    def charts(self) -> dict[str, alt.TopLevelMixin]:
        """Altair charts by the names of the pictures."""
        from workbench.sizing import calc_charts

        return {name: calc_charts.chart(spec) for name, spec in calc_charts.specs(self.calculation).items()}

    def __repr__(self) -> str:
        from workbench.sizing import calc_table

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
        Options that do not go together.
    InputError
        A file, a dataset or a folder that cannot be used.
    MissingToolError
        The toolkit is needed and not there.
    """
    checked(options)
    if not options.offline:
        from workbench.sizing.calc_online import run_online

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
    """Write the job into its folder, and tell or remove the older ones."""
    from workbench import __version__

    assert done.folder is not None
    assert options.output_dir is not None
    older = [job for job in calcfile.job_folders(options.output_dir / mode) if job != done.folder]
    if older and not options.remove_older:
        done.notices.append(
            f"{len(older)} older {mode} job(s) kept (--remove_older_jobs removes them, as the toolkit does)"
        )
    notes = {"workbench": __version__, **done.document()}
    done.paths = calcjob.write(done.folder, done.calculation, notes=notes, plots=options.plots)
    if options.remove_older and (removed := calcjob.remove_older(done.folder, older)):
        done.notices.append(f"removed {len(removed)} older {mode} job(s), as asked")


def options(**given: Any) -> Options:
    """`Options` from values as Python users have them: folders and files may be texts.

    Raises
    ------
    ConfigError
        A name that is no option.
    """
    known = [item.name for item in fields(Options)]
    if unknown := sorted(set(given) - set(known)):
        raise ConfigError("unknown option", where="sizing.calculate", found=unknown, allowed=known)
    for name in ("output_dir", "config_file"):
        if given.get(name) is not None:
            given[name] = Path(given[name])
    return Options(**given)


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


def checked(options: Options) -> None:
    """Refuse options that do not go together, all before anything runs."""
    goal = options.goal
    _check_levels(options.concurrencies)
    if options.num_passes < 0:
        raise ConfigError("not a number of passes", where="--num_passes", found=options.num_passes, allowed="0 or more")
    if not 0 < options.endpoint_timeout_s <= LONGEST_TIMEOUT_S:
        allowed = f"above 0 s, at most {LONGEST_TIMEOUT_S:,} s"
        raise ConfigError(
            "not a time limit", where="--endpoint_timeout", found=options.endpoint_timeout_s, allowed=allowed
        )
    if options.write is False and options.remove_older:
        raise ConfigError("older jobs are only removed for a new one", where="--remove_older_jobs")
    if not options.offline:
        if options.config_file is None:
            do = "name the toolkit's YAML with --config_file, or calculate from recorded jobs with --offline_mode"
            raise ConfigError("a config file is required online", where="--config_file", do=do)
        return
    if not (goal.target_llm_latency_s or goal.target_workflow_runtime_s):
        where = "--target_llm_latency, --target_workflow_runtime"
        raise ConfigError("no target: nothing to estimate", where=where, found="both 0", allowed="one above 0 s")
    if not goal.test_gpu_count:
        raise ConfigError("no GPU count: nothing to estimate", where="--test_gpu_count", found=0, allowed="1 or more")
    if not goal.target_users:
        raise ConfigError("no users: nothing to estimate", where="--target_users", found=0, allowed="1 or more")
    if options.append:
        raise ConfigError("jobs are only appended online", where="--append_calc_outputs", do="leave it out offline")
    if options.output_dir is None:
        do = "name the folder that holds online/job_*"
        raise ConfigError("an output folder is required offline", where="--calc_output_dir", do=do)


def _check_levels(levels: tuple[int, ...] | None) -> None:
    if levels is None:
        return
    where = "--concurrencies"
    if not 2 <= len(levels) <= MOST_LEVELS:
        allowed = f"2 to {MOST_LEVELS:,} levels"
        raise ConfigError("a line needs at least two levels", where=where, found=len(levels), allowed=allowed)
    if odd := [level for level in levels if not 1 <= level <= LARGEST_CONCURRENCY]:
        raise ConfigError("no load", where=where, found=listed(odd), allowed=f"1 to {LARGEST_CONCURRENCY:,}")
    if twice := sorted({level for level in levels if levels.count(level) > 1}):
        raise ConfigError("levels given twice", where=where, found=listed(twice), allowed="each once")


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
