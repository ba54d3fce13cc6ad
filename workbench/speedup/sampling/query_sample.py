"""A sample of a run's longest queries: slices of their tables on both engines, within a budget of the run's time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from workbench import stats
from workbench.core.errors import ConfigError, InputError
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.task_slots import TaskSlots
from workbench.runs import run_folder
from workbench.speedup.attribution.time_pieces import COUNTS, Measured
from workbench.speedup.calibration.factor_model import FactorModel, load_factor_model
from workbench.speedup.calibration.factors import FIRST_RUN_NOISE, WARM_RUN_NOISE
from workbench.speedup.calibration.prediction import (
    list_sampled_errors,
    predict_queries,
    read_candidate_plans,
    select_counted_runs,
    sum_query_errors,
)
from workbench.speedup.comparison.pair import Pair, load_recorded_pair
from workbench.speedup.config import SampleConfig
from workbench.speedup.fleet.fleet_logs import open_default_cache
from workbench.speedup.fleet.fleet_reader import measure_fleet
from workbench.speedup.recording import recorder, recording_plan
from workbench.speedup.recording.recording_plan import Recording, RecordingPlan
from workbench.speedup.sampling.memory_needs import find_task_memory, measure_memory_needs
from workbench.speedup.tables import PREDICTIONS, SAMPLED_QUERIES

# A table smaller than this share of the largest one stays whole: a dimension without most of its rows joins with
# little.
MIN_SLICED_SHARE = 0.1
# Places of a table that its slice is taken from, if its rows are not more; each keeps neighbours together.
N_PLACES = 20


@dataclass(frozen=True)
class TableSlice:
    """A table in a folder of slices. `n_rows`, `n_taken`: Its rows, and those taken; both null for a whole table."""

    name: str
    n_rows: int | None = None
    n_taken: int | None = None


@dataclass(frozen=True)
class _RowGroup:
    path: Path
    number: int
    n_rows: int


def slice_tables(views: Mapping[str, str], folder: Path, share: float) -> list[TableSlice]:
    """Write slices of the large tables into a new folder, and links to the small ones.

    `views`: Path of each table, a Parquet file or a folder of them, by name.

    Returns: One row a table. A slice has the same share of each large table, from places at equal distances. Rows of
    two sliced tables that belong together are seldom both taken, so a join of two large tables meets fewer partners
    than in the whole.
    """
    folder.mkdir(parents=True)
    paths = {name: Path(path) for name, path in views.items()}
    sizes = {name: sum(file.stat().st_size for file in _list_files(path)) for name, path in paths.items()}
    largest = max(sizes.values())
    slices = []
    for name, path in paths.items():
        target = folder / f"{name}.parquet"
        if sizes[name] < MIN_SLICED_SHARE * largest:
            target.symlink_to(path.absolute(), target_is_directory=path.is_dir())
            slices.append(TableSlice(name))
        else:
            slices.append(_slice_table(name, path, target, share))
    return slices


def _list_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*.parquet") if file.is_file())


def _slice_table(name: str, path: Path, target: Path, share: float) -> TableSlice:
    import pyarrow.parquet as pq

    groups = list(_iterate_row_groups(_list_files(path)))
    n_rows = sum(group.n_rows for group in groups)
    wanted = max(1, round(share * n_rows))
    taken: dict[Path, list[tuple[int, int]]] = {}
    for group, n_taken in choose_rows([group.n_rows for group in groups], wanted):
        taken.setdefault(groups[group].path, []).append((groups[group].number, n_taken))
    for file, parts in taken.items():
        # Folders of partitioned tables hold columns in their names.
        written = target if path.is_file() else target / file.relative_to(path)
        written.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetFile(file) as source, pq.ParquetWriter(written, source.schema_arrow) as writer:
            for number, n_taken in parts:
                writer.write_table(source.read_row_group(number).slice(0, n_taken))
    return TableSlice(name, n_rows, wanted)


def _iterate_row_groups(files: Sequence[Path]) -> Iterator[_RowGroup]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        try:
            metadata = pq.read_metadata(file)
        except (OSError, pa.ArrowException) as error:
            raise InputError("a table cannot be read", where=file, found=str(error)[:200], allowed="Parquet") from error
        for number in range(metadata.num_row_groups):
            yield _RowGroup(file, number, metadata.row_group(number).num_rows)


def choose_rows(sizes: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """Row groups to take from, at equal distances, and the rows of each, which sum up to `wanted`.

    `sizes`: Rows of each row group. `wanted`: At most their sum.

    >>> choose_rows([100] * 8, 40), choose_rows([100, 100], 150)
    ([(0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (5, 5), (6, 5), (7, 5)], [(0, 75), (1, 75)])
    """
    filled = np.flatnonzero(np.asarray(sizes) > 0)
    n_full = -(-wanted * len(filled) // max(sum(sizes), 1))
    n_places = min(len(filled), max(N_PLACES, n_full))
    middles = (np.arange(n_places) + 0.5) * len(filled) / max(n_places, 1)
    chosen = [int(filled[int(middle)]) for middle in middles]
    counts = dict.fromkeys(chosen, 0)
    # Short groups give all that they have, and the others share the rest.
    for place, group in enumerate(sorted(chosen, key=lambda group: sizes[group])):
        counts[group] = min(sizes[group], -(-wanted // (n_places - place)))
        wanted -= counts[group]
    for group in (int(group) for group in filled if int(group) not in counts):
        counts[group] = min(sizes[group], wanted)
        wanted -= counts[group]
    return [(group, counts[group]) for group in sorted(counts) if counts[group]]


RECORDING = "recording"
# What a session and a run of a query take whatever the slice, first and warm runs together: 0.8 to 4 s on two machines.
SESSION_S, RUN_S = 12.0, 2.5
# A smaller slice measures little but fixed costs; a larger one is no sample.
MIN_SHARE, MAX_SHARE = 0.01, 0.25
# Log standard deviation of a query's error in the whole around that in a slice.
SLICE_LOG_SD = 0.2
NOT_IN_SUITE, BEYOND_BUDGET, DIFFERS = "not in the suite", "beyond the budget", "failed, or its answer differs"
SPILLS = "may spill in the whole run"
# Time of such queries above which the run's time is not known.
MAX_SPILLING_SHARE = 0.1
# What a session takes after its last query.
CLOSE_S = 3.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class SamplePlan:
    """What is sampled: queries, longest first, and the share of the rows of large tables.

    `budget_s`: What the sample may take. `unknown`: Queries of the log whose text is not known.
    """

    queries: tuple[str, ...]
    share: float
    budget_s: float
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuerySample:
    """Tables `sampled_queries` and `predictions`, and what they say.

    `run_s`: Time of all queries in the baseline's log. `cost_s`: Time that the sample took, slices included.
    `totals`: Predicted seconds of the log's queries, lower and upper end. `without`: The same without the sample.
    """

    candidate: str
    plan: SamplePlan
    slices: tuple[TableSlice, ...]
    queries: pl.DataFrame
    predictions: pl.DataFrame
    run_s: float
    cost_s: float
    totals: tuple[float, float, float]
    without: tuple[float, float, float]

    @property
    def n_sampled(self) -> int:
        """Queries whose sample counts."""
        return int(self.queries["log_error"].is_not_null().sum())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the answer is not known; empty when it is."""
        failed = self.queries.filter(pl.col("reason") == DIFFERS)["query"].to_list()
        reasons = [f"samples do not count, {DIFFERS}: {', '.join(failed)}"] if failed else []
        spilling = self.queries.filter(pl.col("memory_need") > 1)
        if (share := spilling["log_share"].sum()) > MAX_SPILLING_SHARE:
            worst = spilling.sort("memory_need", descending=True).row(0, named=True)
            which = f"{spilling.height} queries, {100 * share:.0f} % of the time, may spill on {self.candidate}"
            most = f"a task of {worst['query']} had {worst['memory_need']:.1f} times the memory that it has there"
            reasons.append(f"{which}, which slices do not show: {most}")
        return (*reasons, *(() if self.n_sampled else ("no query has a sample that counts",)))

    @property
    def answer(self) -> str:
        """The result in one sentence or two."""
        sliced = [part for part in self.slices if part.n_taken is not None]
        share = self.queries.filter(pl.col("log_error").is_not_null())["log_share"].sum()
        total, low, high = self.totals
        beyond = f", beyond the budget of {self.plan.budget_s:,.1f} s" if self.cost_s > self.plan.budget_s else ""
        return (
            f"{self.n_sampled} of {self.queries.height} queries, {100 * share:.0f} % of the run's {self.run_s:,.1f} s,"
            f" ran on {100 * self.plan.share:.1f} % of the rows of {len(sliced)} of {len(self.slices)} tables,"
            f" in {self.cost_s:,.1f} s ({100 * self.cost_s / self.run_s:.1f} % of the run{beyond})."
            f" On {self.candidate} the run is predicted to take {total:,.1f} s ({low:,.1f} to {high:,.1f}),"
            f" {self.run_s / total:.2f}x as fast; without the sample"
            f" {self.without[0]:,.1f} s ({self.without[1]:,.1f} to {self.without[2]:,.1f})."
        )


def sample_queries(config: SampleConfig, *, say: Say) -> QuerySample:
    """How far are predictions off for these queries? Their tables' slices run on both engines, side by side.

    The baseline's log tells which queries hold the time, and what the budget is. The error of the factors on a slice,
    whose own log they predict from, corrects the prediction of the whole query, as far as a slice is known to tell it.

    Sessions stop by the clock: what does not end within the budget does not count. Queries that may spill in the
    whole run are told by the memory of their tasks in the log and not sampled.

    It does not show what only the whole data does: joins of two large tables, which lose partners in slices, and joins
    that adaptive execution chooses by their size.
    """
    model = load_factor_model(config.factors)
    log = measure_fleet([config.baseline_log], cache=open_default_cache()).measured
    if not log.executions.height:
        raise InputError("the log has no query that can be predicted", where=config.baseline_log)
    facts = read_event_logs(config.baseline_log)
    started = time.monotonic()
    suite = config.build_record_config(out=config.out / RECORDING, sessions=1)
    prepared = recording_plan.prepare_recording(suite, say=say)
    if not prepared.data.views:
        raise ConfigError(
            "slices are made of files on this machine",
            where="--data",
            found=prepared.data.place,
            do="copy the tables, or a part of them, to a folder",
        )
    times = _sum_query_times(log)
    needs = _measure_memory_needs(facts, prepared)
    spilling = [query for query in prepared.suite.queries if needs.get(query, 0.0) > 1]
    if spilling:
        say(f"not sampled, since they may spill in the whole run: {', '.join(spilling[:10])}")
    plan = plan_sample(times, list(prepared.suite.queries), config.budget_share, suite.n_passes, spilling)
    with tempfile.TemporaryDirectory(prefix="workbench-slices-") as scratch:
        say(f"slicing tables: {100 * plan.share:.1f} % of the rows of the large ones")
        slices = slice_tables(prepared.data.views, Path(scratch) / "tables", plan.share)
        sliced = suite.model_copy(update={"data": str(Path(scratch) / "tables"), "only": list(plan.queries)})

        def find_limit_s(n_left: int) -> float:
            return max(0.0, plan.budget_s - (time.monotonic() - started)) / n_left - CLOSE_S

        outcome = recorder.record_suite(sliced, say=say, find_limit_s=find_limit_s)
    cost_s = time.monotonic() - started
    ran = _list_whole_queries(outcome.recording)
    pair = load_recorded_pair(suite.out)
    return build_sample(model, log, pair, replace(plan, queries=ran), slices, cost_s, needs)


def _list_whole_queries(recording: Recording) -> tuple[str, ...]:
    """Queries that ran as often as planned on both sides before the clock stopped them."""
    runs = recording.read_executions().group_by("query").agg(pl.len())
    return tuple(runs.filter(pl.col("len") >= len(recording.sides) * recording.n_passes)["query"].sort())


def _measure_memory_needs(facts: EventLogFacts, prepared: RecordingPlan) -> dict[str, float]:
    """Memory that tasks of the whole run need over what the candidate gives them, by query."""
    slots = [executor.slots for executor in TaskSlots(facts, facts.logs["log_id"][0]).executors if executor.slots]
    settings = prepared.shared | prepared.build_side_settings(prepared.sides[1])
    memory_bytes = find_task_memory(settings, max(slots, default=1))
    return {} if memory_bytes is None else measure_memory_needs(facts, memory_bytes)


def _sum_query_times(log: Measured) -> pl.DataFrame:
    """`query, baseline_s` (all runs together), longest first."""
    counted = log.include_first_runs().executions.filter(COUNTS)
    return counted.group_by("query").agg(baseline_s=pl.col("wall_s").sum()).sort("baseline_s", "query", descending=True)


def plan_sample(
    times: pl.DataFrame, known: Sequence[str], budget_share: float, n_passes: int, spilling: Collection[str] = ()
) -> SamplePlan:
    """Choose queries and share so that both sides' runs fit into the budget; the shortest queries are left out first.

    `times`: `query, baseline_s`, longest first. `known`: Queries whose text is known. `spilling`: Not worth a sample.

    >>> times = pl.DataFrame({"query": ["a", "b", "c"], "baseline_s": [400.0, 390.0, 1.0]})
    >>> plan = plan_sample(times, ["a", "b", "c"], 0.1, 2)
    >>> plan.queries, round(plan.share, 3)
    (('a', 'b'), 0.011)
    """
    run_s = float(times["baseline_s"].sum())
    budget_s = budget_share * run_s
    is_known = pl.col("query").is_in(list(known))
    candidates, unknown = times.filter(is_known), tuple(times.filter(~is_known)["query"])
    if not candidates.height:
        raise InputError(
            "no query of the log is in the suite",
            where="--baseline-log, --queries",
            found=times["query"].head(5).to_list(),
            allowed=list(known)[:10],
            do="give the queries of that run, under the names of its job descriptions",
        )
    candidates = candidates.filter(~pl.col("query").is_in(list(spilling)))
    if not candidates.height:
        raise InputError(
            "every query may spill on the candidate, which slices do not show",
            where="--conf",
            found=sorted(spilling)[:10],
            do="give the candidate more memory, or run the queries on it instead (workbench speedup record)",
        )
    for n in range(candidates.height, 0, -1):
        chosen = candidates.head(n)
        # The candidate is taken to be as slow as the baseline.
        left_s = budget_s - 2 * SESSION_S - 2 * n_passes * n * RUN_S
        share = left_s / (2 * n_passes * float(chosen["baseline_s"].sum()))
        if share >= MIN_SHARE:
            return SamplePlan(tuple(chosen["query"]), min(share, MAX_SHARE), budget_s, unknown)
    least_s = 2 * SESSION_S + 2 * n_passes * (RUN_S + MIN_SHARE * float(candidates["baseline_s"][0]))
    raise InputError(
        "the run is too short for a sample within the budget",
        where="--budget",
        found=f"{100 * budget_share:.0f} % of {run_s:.1f} s",
        allowed=f"{least_s:.0f} s or more",
        do="run its queries on the candidate instead (workbench speedup record), or raise the budget",
    )


def build_sample(
    model: FactorModel,
    log: Measured,
    pair: Pair,
    plan: SamplePlan,
    slices: Sequence[TableSlice],
    cost_s: float,
    needs: Mapping[str, float] | None = None,
) -> QuerySample:
    """Correct the predictions of a log by the pair that ran on slices. `needs`: As column `memory_need`, by query."""
    plans = read_candidate_plans(pair.measured, pair.candidate)
    memory_need = pl.DataFrame(list((needs or {}).items()), schema={"query": str, "memory_need": float}, orient="row")
    spilling = memory_need.filter(pl.col("memory_need") > 1)
    measured = measure_sampled_queries(model, pair).join(spilling, on="query", how="anti")
    errors = list_sampled_errors(measured)
    predictions, without = (predict_queries(model, log, plans=plans, samples=known) for known in (errors, None))
    times = _sum_query_times(log)
    run_s = float(times["baseline_s"].sum())
    reason = (
        pl.when(pl.col("log_error").is_not_null())
        .then(None)
        .when(pl.col("query").is_in(spilling["query"].implode()))
        .then(pl.lit(SPILLS))
        .when(pl.col("query").is_in(list(plan.queries)))
        .then(pl.lit(DIFFERS))
        .when(pl.col("query").is_in(list(plan.unknown)))
        .then(pl.lit(NOT_IN_SUITE))
        .otherwise(pl.lit(BEYOND_BUDGET))
    )
    queries = (
        times.join(measured, on="query", how="left", maintain_order="left")
        .join(memory_need, on="query", how="left", maintain_order="left")
        .with_columns(log_share=pl.col("baseline_s") / run_s, reason=reason)
        .select(*SAMPLED_QUERIES.schema())
    )
    return QuerySample(
        model.candidate,
        plan,
        tuple(slices),
        SAMPLED_QUERIES.check(queries),
        predictions,
        run_s,
        cost_s,
        _sum_predictions(model, predictions),
        _sum_predictions(model, without),
    )


def _sum_predictions(model: FactorModel, predictions: pl.DataFrame) -> tuple[float, float, float]:
    below, above = sum_query_errors(predictions, model, stats.LEVEL)
    total = float(predictions["predicted_s"].sum())
    return total, total - below, total + above


def measure_sampled_queries(model: FactorModel, pair: Pair) -> pl.DataFrame:
    """Ratio of each query on slices beside that which the factors predict from the slices' own log.

    Returns: Columns of table `sampled_queries` from `n_runs` on, by query.
    """
    logs = (
        pair.measured.executions.filter(COUNTS)
        .group_by("query", "label")
        .agg(log_s=pl.col("wall_s").log().mean(), n=pl.len())
    )
    sides = [
        logs.filter(pl.col("label") == label).select("query", pl.col("log_s", "n").name.suffix(f"_{side}"))
        for side, label in (("base", pair.baseline), ("cand", pair.candidate))
    ]
    both = sides[0].join(sides[1], on="query")
    side = select_counted_runs(pair.measured, pair.baseline)
    plans = read_candidate_plans(pair.measured, pair.candidate)
    predicted = predict_queries(model, side, plans=plans).group_by("query").agg(log_ratio=pl.col("ratio").log().mean())
    noise = (FIRST_RUN_NOISE if pair.first_runs else WARM_RUN_NOISE).query_log_sd
    return both.join(predicted, on="query").select(
        "query",
        n_runs=pl.min_horizontal("n_base", "n_cand").cast(pl.Int64),
        sample_baseline_s=pl.col("log_s_base").exp(),
        sample_candidate_s=pl.col("log_s_cand").exp(),
        sample_ratio=(pl.col("log_s_base") - pl.col("log_s_cand")).exp(),
        expected_ratio=pl.col("log_ratio").exp(),
        log_error=pl.col("log_s_base") - pl.col("log_s_cand") - pl.col("log_ratio"),
        log_sd=(noise**2 * (1 / pl.col("n_base") + 1 / pl.col("n_cand")) + SLICE_LOG_SD**2).sqrt(),
    )


def write_sample(sample: QuerySample, config: SampleConfig) -> None:
    """Write the tables into the run folder."""
    run = run_folder.start_run("speedup", folder=config.out, title="Sample", command="workbench speedup sample")
    run.write_table(SAMPLED_QUERIES, sample.queries)
    run.write_table(PREDICTIONS, sample.predictions)
    run.add_input(config.baseline_log)
    run.add_input(config.factors)
    run.conclude("invalid" if sample.reasons else "valid", sample.reasons, sample.answer)
