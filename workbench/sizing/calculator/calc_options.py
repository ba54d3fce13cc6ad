"""What a calculation is asked for: options with the names of the toolkit's flags, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.sizing.calculator.calculation import Goal, listed
from workbench.sizing.slope import RULES, FitRules

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


def refuse_beside_levels(asked: Options) -> None:
    """Refuse options that mean nothing when the levels are given in memory.

    Raises
    ------
    ConfigError
        Any but goal and rules.
    """
    plain = Options()
    found = [
        item.name
        for item in fields(Options)
        if item.name not in ("goal", "rules") and getattr(asked, item.name) != getattr(plain, item.name)
    ]
    if found:
        what = "levels in memory are only calculated with: nothing is read, run or written"
        raise ConfigError(what, where="sizing.calculate", found=found, do="leave these out, or leave levels out")


def _check_levels(levels: tuple[int, ...] | None) -> None:
    if levels is None:
        return
    where = "--concurrencies"
    if not 2 <= len(levels) <= MOST_LEVELS:
        allowed = f"2 to {MOST_LEVELS:,} levels"
        raise ConfigError("a line needs at least two levels", where=where, found=len(levels), allowed=allowed)
    if odd := [level for level in levels if not isinstance(level, int) or not 1 <= level <= LARGEST_CONCURRENCY]:
        raise ConfigError("no load", where=where, found=listed(odd), allowed=f"1 to {LARGEST_CONCURRENCY:,}")
    if twice := sorted({level for level in levels if levels.count(level) > 1}):
        raise ConfigError("levels given twice", where=where, found=listed(twice), allowed="each once")
