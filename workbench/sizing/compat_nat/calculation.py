"""Options of a calculation, and GPUs from measured levels; pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, StrictInt

from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_items
from workbench.core.schema import StrictModel, validate_model
from workbench.sizing.compat_nat.calc_file import (
    Alerts,
    CalcOutput,
    FitResults,
    GpuEstimates,
    LevelData,
    SizingMetrics,
    find_unusable_reason,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[Any]

MIN_POINTS = 2
"""Points that a line needs."""

CalcMetric = Literal["llm_latency", "wf_runtime"]
METRIC_LABELS: dict[CalcMetric, str] = {"wf_runtime": "Workflow Runtime", "llm_latency": "LLM Latency"}
INTERRUPTED_REASON = "interrupted: a run failed"
MAX_COUNT = 10**9
MAX_SHOWN = 12
MIN_ADVISED_LEVELS = 10
CONCURRENCIES = tuple(range(1, 11))
MAX_LEVELS = 1_000
MAX_CONCURRENCY = 100_000
MAX_TIMEOUT_S = 86_400


@dataclass(frozen=True)
class FitRules:
    """Rules for outliers and for a line to count as none; defaults are the toolkit's, which has no flags for them.

    Parameters
    ----------
    remove_outliers
        Leave outliers out before the fit; only done with five levels or more.
    small_range
        Up to so many levels, raw p95 values are looked at first.
    extreme_iqr
        A raw p95 value farther than so many interquartile ranges outside the quartiles is left out.
    residual_iqr
        The same for the distance from a first line.
    min_r_squared
        A line that explains less is no line.
    """

    remove_outliers: bool = True
    small_range: int = 8
    extreme_iqr: float = 2.0
    residual_iqr: float = 1.5
    min_r_squared: float = 0.7


RULES = FitRules()


@dataclass(frozen=True)
class Line:
    """A fitted line: seconds of p95 for each further user, p95 without load, what it explains, levels left out."""

    slope: float
    intercept: float
    r_squared: float
    outliers_removed: tuple[int, ...] = ()

    def at(self, concurrency: float) -> float:
        """The p95 that the line gives for a concurrency, in s."""
        return self.slope * concurrency + self.intercept


@dataclass(frozen=True)
class Fit:
    """A line, or the reason why there is none."""

    line: Line | None
    reason: str | None = None


@dataclass(frozen=True)
class Estimate:
    """GPUs (not rounded), or the reason why there is no number.

    `refused` tells the cases in which the toolkit ends with a traceback: the line is fine, the question has no answer.
    """

    gpus: float | None
    reason: str | None = None
    refused: bool = False


def fit_line(concurrencies: Sequence[float], p95_s: Sequence[float], rules: FitRules = RULES) -> Fit:
    """Which line do the p95 values follow as the load grows?

    Parameters
    ----------
    concurrencies
        Loads, each once; whole numbers as ints, for then sums are exact.
    p95_s
        p95 at each load, in s.
    rules
        Outliers and the least R²; those of the toolkit by default.

    Returns
    -------
    Fit
        The line with the concurrencies that were left out as outliers (in the order given, raw ones first), or why
        there is none: fewer than two points, nothing left after outliers, R² too small. Flat data have R² 0.

    Raises
    ------
    InputError
        Both differ in length, or a value is not finite.

    Notes
    -----
    With 5 to 8 levels, values outside [Q1 - 2 IQR, Q3 + 2 IQR] are left out; with 5 or more, then residuals of a first
    line outside 1.5 IQR, once. Quartiles are numpy's (linear). The rule for few levels takes the highest load of a
    geometric ladder for an outlier, and R² accepts a clear bend (0.94 for a hockey stick).
    Source: NeMo Agent Toolkit 1.9.0, measured and read; the toolkit documents other thresholds than it uses.

    Examples
    --------
    >>> fit = fit_line([1, 2, 4, 8], [1.5, 2.0, 3.0, 5.0])
    >>> fit.line
    Line(slope=0.5, intercept=1.0, r_squared=1.0, outliers_removed=())
    >>> fit_line([1, 2, 4], [3.0, 3.0, 3.0]).reason
    'p95 does not follow a line over the load: R² = 0.000, at least 0.7 needed'
    """
    import numpy as np

    if len(concurrencies) != len(p95_s):
        counts = f"{len(concurrencies)} and {len(p95_s)} values"
        raise InputError("loads and p95 values are not pairs", where="slope", found=counts)
    if odd := [value for value in (*concurrencies, *p95_s) if not math.isfinite(value)]:
        raise InputError("values that no line can be fitted to", where="slope", found=odd[:5], allowed="finite numbers")
    x, y = np.array(concurrencies), np.array(p95_s, dtype=np.float64)
    if len(x) < MIN_POINTS:
        there = "is 1" if len(x) == 1 else "are none"
        return Fit(None, f"a line needs at least {MIN_POINTS} usable levels, there {there}")
    # Whole numbers stay whole, unless their sum of squares would wrap around.
    if x.dtype.kind != "i" or (len(x) * max(abs(int(value)) for value in x)) ** 2 >= 2**63:
        x = x.astype(np.float64)
    removed: list[int] = []
    # A vertical or empty remainder divides by zero, which comes out as "no line" below.
    with np.errstate(all="ignore"):
        if rules.remove_outliers and len(x) > 4:
            x, y, removed = _drop_outliers(x, y, rules)
        if len(x) < MIN_POINTS:
            return Fit(None, f"outliers leave {len(x)} of {len(concurrencies)} levels: no line")
        slope, intercept = _least_squares(x, y)
        residual, total = ((y - (slope * x + intercept)) ** 2).sum(), ((y - y.mean()) ** 2).sum()
        r_squared = float(1 - residual / total) if total != 0 else 0.0
    if not all(map(math.isfinite, (slope, intercept, r_squared))):
        return Fit(None, "p95 values too large to fit a line")
    if r_squared < rules.min_r_squared:
        reason = "p95 does not follow a line over the load"
        return Fit(None, f"{reason}: R² = {r_squared:.3f}, at least {rules.min_r_squared:g} needed")
    return Fit(Line(slope, intercept, r_squared, tuple(removed)))


def gpus_by_slope(line: Line, *, target_s: float, users: float, test_gpus: float) -> Estimate:
    """How many GPUs do the users need by the line, so that p95 stays at the target?

    Parameters
    ----------
    line
        What `fit_line` found on `test_gpus` GPUs.
    target_s
        Largest p95 allowed, in s.
    users
        Concurrent users to be served.
    test_gpus
        GPUs that the measurements ran on.

    Returns
    -------
    Estimate
        users / c * test_gpus, c being the concurrency at which the line meets the target; not rounded. Null when the
        target is at or below the intercept, or the line does not rise.

    Notes
    -----
    Assumes that GPUs scale linearly and that the line holds at any load.

    Examples
    --------
    >>> gpus_by_slope(Line(0.6, 3.5, 0.99), target_s=10, users=100, test_gpus=8).gpus
    73.84615384615384
    >>> gpus_by_slope(Line(0.6, 3.5, 0.99), target_s=3, users=100, test_gpus=8).reason
    'the target of 3 s is not above the 3.5 s that the line has without load: no number of GPUs meets it by this line'
    """
    if target_s <= line.intercept:
        reason = f"the target of {target_s:g} s is not above the {line.intercept:g} s that the line has without load"
        return Estimate(None, f"{reason}: no number of GPUs meets it by this line", refused=True)
    if line.slope <= 0:
        reason = f"the line does not rise with the load (slope {line.slope:.4g} s per user)"
        return Estimate(None, f"{reason}: it says nothing about how much load is too much", refused=True)
    concurrency = (target_s - line.intercept) / line.slope
    return Estimate((users / concurrency) * test_gpus)


def rough_gpus(
    concurrency: int,
    *,
    llm_latency_s: float,
    wf_runtime_s: float,
    target_llm_s: float,
    target_runtime_s: float,
    users: float,
    test_gpus: float,
) -> GpuEstimates:
    """How many GPUs by one level alone, as if time grew in proportion to load?

    users / c * observed / target * test GPUs. A target of 0 is none. Both are null when either metric is above its
    target: the toolkit's rule.

    >>> rough_gpus(4, llm_latency_s=0.5, wf_runtime_s=5, target_llm_s=0, target_runtime_s=10, users=100, test_gpus=8)
    GpuEstimates(gpu_estimate_by_wf_runtime=100.0, gpu_estimate_by_llm_latency=None)
    """
    use_llm, use_runtime = target_llm_s > 0, target_runtime_s > 0
    if (use_llm and llm_latency_s > target_llm_s) or (use_runtime and wf_runtime_s > target_runtime_s):
        return GpuEstimates()
    by_llm = (users / concurrency) * (llm_latency_s / target_llm_s) * test_gpus if use_llm else None
    by_runtime = (users / concurrency) * (wf_runtime_s / target_runtime_s) * test_gpus if use_runtime else None
    return GpuEstimates(gpu_estimate_by_llm_latency=by_llm, gpu_estimate_by_wf_runtime=by_runtime)


def _drop_outliers(x: Numbers, y: Floats, rules: FitRules) -> tuple[Numbers, Floats, list[int]]:
    """Leave out outliers by value, where the levels are few, and then by their distance from the line.

    `x`: Levels. `y`: Their p95 in seconds. Returns: Levels and values that are left, and the levels removed.
    """
    removed: list[int] = []
    if len(x) <= rules.small_range:
        mask = _mask_outliers(y, rules.extreme_iqr)
        removed += x[~mask].tolist()
        x, y = x[mask], y[mask]
    if len(x) < MIN_POINTS:
        return x, y, removed
    slope, intercept = _least_squares(x, y)
    # y - slope * x - intercept rounds differently, and then names other outliers on an exact line.
    mask = _mask_outliers(y - (slope * x + intercept), rules.residual_iqr)
    return x[mask], y[mask], [*removed, *x[~mask].tolist()]


def _mask_outliers(values: Floats, reach: float) -> npt.NDArray[np.bool_]:
    """Mask of the values that lie within `reach` interquartile ranges of the quartiles."""
    import numpy as np

    first, third = np.percentile(values, 25), np.percentile(values, 75)
    span = third - first
    return np.asarray((values >= first - reach * span) & (values <= third + reach * span))


def _least_squares(x: Numbers, y: Floats) -> tuple[float, float]:
    """Slope and intercept of the least-squares line through the points.

    >>> import numpy as np
    >>> _least_squares(np.array([1, 2, 3]), np.array([2.0, 4.0, 6.0]))
    (2.0, 0.0)
    """
    n, sum_x, sum_y = len(x), x.sum(), y.sum()
    slope = (n * (x * y).sum() - sum_x * sum_y) / (n * (x**2).sum() - sum_x**2)
    return float(slope), float((sum_y - slope * sum_x) / n)


@dataclass(frozen=True)
class CalcGoal:
    """Goal of a calculation: p95 limits in s (0: none), users to serve, GPUs of the measurement."""

    target_llm_latency_s: float = 0.0
    target_workflow_runtime_s: float = 0.0
    target_users: int = 0
    test_gpu_count: int = 0

    def __post_init__(self) -> None:
        allowed = f"0 (not asked) to {MAX_COUNT:,}"
        for name, value in vars(self).items():
            if not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT:
                raise ConfigError(
                    "not a target" if "target" in name else "not a count", where=name, found=value, allowed=allowed
                )

    def limit_s(self, metric: CalcMetric) -> float:
        """Limit of a metric, 0 for none."""
        return self.target_llm_latency_s if metric == "llm_latency" else self.target_workflow_runtime_s

    @property
    def targeted_metrics(self) -> tuple[CalcMetric, ...]:
        """Metrics with a target; none without users or GPUs."""
        is_answerable = self.target_users > 0 and self.test_gpu_count > 0
        return tuple(metric for metric in METRIC_LABELS if is_answerable and self.limit_s(metric) > 0)


@dataclass(frozen=True)
class CalcAnswer:
    """GPUs by one metric, or the reason why there are none; `refused` marks cases in which the toolkit crashes."""

    metric: CalcMetric
    limit_s: float
    gpus: float | None
    reason: str | None = None
    refused: bool = False


@dataclass
class Calculation:
    """Result: content of the file, an answer per target, levels left out with reasons, notices."""

    goal: CalcGoal
    output: CalcOutput
    answers: list[CalcAnswer] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)
    fits: dict[CalcMetric, Fit] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0: all targets have an answer; 1: the levels give no line; 2: the line gives no answer."""
        unanswered = [answer for answer in self.answers if answer.gpus is None]
        return 2 if any(answer.refused for answer in unanswered) else 1 if unanswered else 0

    @property
    def levels_in_fit(self) -> list[int]:
        """Levels used for the fits, including outliers."""
        return [level for level in self.output.calc_data if level not in self.left_out]


def calculate_gpus(metrics: Mapping[int, SizingMetrics], goal: CalcGoal, rules: FitRules = RULES) -> Calculation:
    """Estimate the GPUs for a goal with a line through the measured levels.

    Returns: `output` is what the toolkit would write; where the toolkit crashes, there are nulls and a reason.

    A level is usable if it has both p95 values and was not interrupted. If no level has LLM calls, the runtime is
    sufficient. Rough estimates and counts over the target are computed for usable levels.
    """
    result = Calculation(goal, CalcOutput())
    usable = [level for number, level in metrics.items() if find_unusable_reason(number, level) is None]
    calls = any(level.llm_latency_p95 for level in usable) or not any(level.workflow_runtime_p95 for level in usable)
    for number, level in metrics.items():
        reason = find_unusable_reason(number, level)
        if reason is None and not level.workflow_runtime_p95:
            reason = "no workflow runtime"
        if reason is None and calls and not level.llm_latency_p95:
            reason = "no LLM latency, though other levels have one"
        if reason is None and level.alerts.workflow_interrupted:
            reason = INTERRUPTED_REASON
        if reason is not None:
            result.left_out[number] = reason
    fit_levels = {number: level for number, level in metrics.items() if number not in result.left_out}
    # Notices about the levels of the fit.
    notices = []
    if fit_levels and not calls:
        notices.append("no LLM call at any level: sized on workflow runtime alone")
    negative = [n for n, level in fit_levels.items() if min(level.llm_latency_p95, level.workflow_runtime_p95) < 0]
    if negative:
        notices.append(
            f"p95 below 0 at concurrency {format_items(negative, MAX_SHOWN)}: used nevertheless, as in the toolkit"
        )
    if metrics and len(fit_levels) < MIN_ADVISED_LEVELS:
        notices.append(f"{len(fit_levels)} usable level(s): {MIN_ADVISED_LEVELS} or more are advised for a line")
    result.notices = notices
    loads, used = list(fit_levels), fit_levels.values()
    result.fits["wf_runtime"] = fit_line(loads, [level.workflow_runtime_p95 for level in used], rules)
    result.fits["llm_latency"] = Fit(None, "the workflow makes no LLM calls")
    if calls:
        result.fits["llm_latency"] = fit_line(loads, [level.llm_latency_p95 for level in used], rules)
    lines = {f"{metric}_fit": vars(fit.line) for metric, fit in result.fits.items() if fit.line is not None}
    result.output.fit_results = FitResults.model_validate(lines)
    for number, level in metrics.items():
        result.output.calc_data[number] = LevelData(sizing_metrics=level)
        if number in fit_levels:
            _fill_level(result.output.calc_data[number], number, result, calls=calls)
    for metric in goal.targeted_metrics:
        fit, limit_s = result.fits[metric], goal.limit_s(metric)
        estimate = Estimate(None, fit.reason)
        if fit.line is not None:
            users, test_gpus = goal.target_users, goal.test_gpu_count
            estimate = gpus_by_slope(fit.line, target_s=limit_s, users=users, test_gpus=test_gpus)
        result.answers.append(CalcAnswer(metric, limit_s, estimate.gpus, estimate.reason, estimate.refused))
    gpus = {f"gpu_estimate_by_{answer.metric}": answer.gpus for answer in result.answers}
    result.output.gpu_estimates = GpuEstimates.model_validate(gpus)
    return result


def _fill_level(data: LevelData, number: int, result: Calculation, *, calls: bool) -> None:
    """Fill in the outliers of a usable level and, with a goal, its rough GPUs and items over the target."""
    outlier = {
        metric: fit.line is not None and number in fit.line.outliers_removed for metric, fit in result.fits.items()
    }
    data.alerts = Alerts(outlier_workflow_runtime=outlier["wf_runtime"], outlier_llm_latency=outlier["llm_latency"])
    goal, level = result.goal, data.sizing_metrics
    if not goal.targeted_metrics:
        return
    llm, runtime = goal.target_llm_latency_s, goal.target_workflow_runtime_s
    data.gpu_estimates = rough_gpus(
        number,
        llm_latency_s=level.llm_latency_p95,
        wf_runtime_s=level.workflow_runtime_p95,
        target_llm_s=llm,
        target_runtime_s=runtime,
        users=goal.target_users,
        test_gpus=goal.test_gpu_count,
    )
    if not calls:
        data.gpu_estimates.gpu_estimate_by_llm_latency = None
    items = level.per_item_metrics.values()
    data.alerts.num_items_greater_than_target_latency = sum(llm > 0 and item.llm_latency > llm for item in items)
    data.alerts.num_items_greater_than_target_runtime = sum(
        runtime > 0 and item.workflow_runtime > runtime for item in items
    )


class Options(StrictModel):
    """Options of a calculation; names follow the toolkit's flags."""

    output_dir: Path | None = Field(
        None, description="Jobs: offline they are read from DIR/online; a new job goes to DIR/online or DIR/offline."
    )
    goal: CalcGoal = Field(default_factory=CalcGoal, description="Limits, users, GPUs.")
    offline: bool = Field(False, description="Calculate from recorded jobs; run nothing.")
    config_file: Path | None = Field(
        None, description="The toolkit's YAML with workflow and eval section; required unless offline."
    )
    concurrencies: tuple[StrictInt, ...] | None = Field(
        None, description="Levels to run; offline all recorded levels are used."
    )
    num_passes: int = Field(0, description="Passes at each level; 0: one, over as many rows as fill the level.")
    append: bool = Field(False, description="Give the job a random id. Older jobs are kept in any case.")
    endpoint: str | None = Field(None, description="URL of a running workflow, instead of starting one.")
    endpoint_timeout_s: float = Field(300.0, description="Longest time of a request, in seconds.")
    target_confirm: str | None = Field(
        None, description="Host of the endpoint again; required unless it is this machine."
    )
    header_env: dict[str, str] = Field(
        {}, description="Header of each request and the environment variable with its value. Repeatable."
    )
    server_clock: bool = Field(
        False, description="At an endpoint, time runs by the server's events, as the toolkit does."
    )
    nat_python: str | None = Field(None, description="A Python that has the toolkit; by default this one.")
    seed: int | None = Field(0, description="Random seed of the order of the dataset's rows; null keeps their order.")
    remove_older: bool = Field(
        False, description="Remove older jobs of the mode once the new one is written, as the toolkit does."
    )
    write: bool = Field(True, description="Write a job folder.")
    plots: bool = Field(True, description="Write pictures, too.")
    rules: FitRules = Field(RULES, description="Outliers and the smallest R².")


def build_options(**settings: Any) -> Options:
    """`Options` from Python values; folders and files may be texts."""
    return validate_model(
        Options, settings, noun="calculation's option", where="sizing.calculate", error_type=ConfigError
    )


def check_options(options: Options) -> None:
    """Check the combination of options before the run starts."""
    goal = options.goal
    _check_levels(options.concurrencies)
    if options.num_passes < 0:
        raise ConfigError("not a number of passes", where="--num_passes", found=options.num_passes, allowed="0 or more")
    if not 0 < options.endpoint_timeout_s <= MAX_TIMEOUT_S:
        allowed = f"above 0 s, at most {MAX_TIMEOUT_S:,} s"
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


def check_options_with_levels(options: Options) -> None:
    """Refuse options that have no effect on levels in memory."""
    plain = Options.model_validate({})
    names = [
        name
        for name in Options.model_fields
        if name not in ("goal", "rules") and getattr(options, name) != getattr(plain, name)
    ]
    if names:
        message = "options without effect on levels in memory"
        raise ConfigError(message, where="sizing.calculate", found=names, do="omit these, or omit levels")


def _check_levels(levels: tuple[int, ...] | None) -> None:
    """Refuse levels of concurrency that are too few, too many, out of range or given twice."""
    if levels is None:
        return
    where = "--concurrencies"
    if not 2 <= len(levels) <= MAX_LEVELS:
        allowed = f"2 to {MAX_LEVELS:,} levels"
        raise ConfigError("a line needs at least two levels", where=where, found=len(levels), allowed=allowed)
    if odd := [level for level in levels if not isinstance(level, int) or not 1 <= level <= MAX_CONCURRENCY]:
        raise ConfigError(
            "not a level", where=where, found=format_items(odd, MAX_SHOWN), allowed=f"1 to {MAX_CONCURRENCY:,}"
        )
    if twice := sorted({level for level in levels if levels.count(level) > 1}):
        raise ConfigError("levels given twice", where=where, found=format_items(twice, MAX_SHOWN), allowed="each once")
