"""Outcome of a dump: inspected, replayed in a process of its own, with verdict and tables."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import polars as pl
from pydantic import BaseModel

from workbench import stats
from workbench.core.child_process import run_command
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.tables import Table
from workbench.lore import tables
from workbench.lore.dump_reader.dump_inspection import Inspection, inspect_dumps
from workbench.lore.dumps.bundles import open_bundle
from workbench.lore.dumps.dump_folder import Sidecar, read_sidecar
from workbench.lore.replays.operator_replay import ReplayOptions, ReplayResult
from workbench.lore.replays.replay_variants import estimate_ratio, summarize_differences, summarize_side
from workbench.lore.tables import DIFFERENCES, RATIOS, TIMES

if TYPE_CHECKING:
    from workbench.lore.bisection.input_bisection import BisectionResult

TIMEOUT_S = 3600
Answer = TypeVar("Answer", bound=BaseModel)
# Replays a folder with options.
Replay = Callable[..., ReplayResult]
QUANTITY_COLUMNS = {
    "operator": "operator_s",
    "operator, CPU": "operator_cpu_s",
    "operator and scan": "total_s",
    "scan (control)": "scan_s",
}
TIMED_COLUMNS = {
    "operator": "operator_s",
    "reading its inputs": "scan_s",
    "operator, CPU": "operator_cpu_s",
    "reading its inputs, CPU": "scan_cpu_s",
}


def replay_in_process(folder: str, **options: Any) -> ReplayResult:
    """Run `workbench lore replay` in a separate process."""
    return _run_command("replay", folder, options, ReplayOptions, ReplayResult)


def bisect_in_process(folder: str, **options: Any) -> BisectionResult:
    """Run `workbench lore bisect` in a separate process; errors as in `replay_in_process`."""
    from workbench.lore.bisection.input_bisection import BisectionResult, BisectOptions

    return _run_command("bisect", folder, options, BisectOptions, BisectionResult)


def _run_command(
    verb: str, folder: str, options: dict[str, Any], model: type[BaseModel], answer: type[Answer]
) -> Answer:
    """Run `workbench lore VERB` in a process of its own and parse its JSON answer."""
    command = [sys.executable, "-m", "workbench", "lore", *build_command(verb, folder, options, model), "--json"]
    try:
        process = run_command(command, env=child_environment(), timeout_s=TIMEOUT_S)
    except RunFailedError as error:
        raise RunFailedError(f"lore {verb} took too long and was ended", found=f"{TIMEOUT_S} s") from error
    if process.exit_code in (0, 1) and process.stdout.lstrip().startswith("{"):
        return answer.model_validate_json(process.stdout)
    message = process.stderr.strip()[-4000:]
    if process.exit_code == 2:
        raise InputError(f"lore {verb} was refused", found=message)
    raise RunFailedError(f"lore {verb} died", found=f"exit code {process.exit_code}\n{message}")


def child_environment() -> dict[str, str]:
    """Environment of a fresh process: without the JVM arguments of this session."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "_PYSPARK"))}


def build_command(verb: str, folder: str | None, options: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Words of `workbench lore VERB [FOLDER]` with these options, which are fields of a model."""
    if unknown := sorted(set(options) - set(model.model_fields)):
        raise ConfigError(f"unknown option of lore {verb}", found=unknown, allowed=sorted(model.model_fields))
    # Turn options into command-line arguments; mappings become FLAG KEY=VALUE, false and null values are left out.
    flags = {"confs": "--conf", "confs_a": "--a", "confs_b": "--b", "inputs": "--input"}
    arguments: list[str] = []
    for name, value in options.items():
        if name in flags:
            for key, element in value.items():
                arguments += [flags[name], f"{key}={element}"]
        elif isinstance(value, list):
            for element in value:
                arguments += [f"--{name.replace('_', '-')}", str(element)]
        elif value is True:
            arguments.append(f"--{name}")
        elif value is not None and value is not False:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    return [verb, *([] if folder is None else [folder]), *arguments]


@dataclass(frozen=True)
class ReplayOutcome:
    """An inspected and replayed dump.

    `sidecar`: plan.json; null for a dump of another tool or a damaged one.
    `replayed`: Result of the fresh process; null when it refused the dump.
    `refused`: Reason of a refusal, or null.
    """

    place: Path
    inspection: Inspection
    sidecar: Sidecar | None
    replayed: ReplayResult | None
    refused: str | None
    level: float = stats.LEVEL

    @property
    def timings(self) -> pl.DataFrame:
        """Table `timings`; empty without timed runs."""
        return tables.TIMINGS.frame(self.replayed.timings if self.replayed is not None else [])

    @property
    def sides(self) -> pl.DataFrame:
        """Table `sides`, with intervals of this level."""
        rows = [dict(row) for row in self.replayed.sides] if self.replayed is not None else []
        for row in rows:
            row |= summarize_side(self.timings.filter(pl.col("side") == row["side"]), level=self.level)
        return tables.SIDES.frame(rows)

    @property
    def times(self) -> pl.DataFrame:
        """Table `times`."""
        rows = []
        for side in self.sides["side"]:
            for quantity, column in TIMED_COLUMNS.items():
                runs = self.timings.filter(side=side)[column].drop_nulls().to_list()
                summary = summarize_differences(runs, level=self.level)
                if summary["value"] is None:
                    continue
                ends = {
                    "median_s": summary["value"],
                    "low_s": summary["low"],
                    "high_s": summary["high"],
                    "n": len(runs),
                }
                rows.append({"side": side, "quantity": quantity, **ends})
        return TIMES.frame(rows)

    @property
    def metrics(self) -> pl.DataFrame:
        """Table `metrics`."""
        return tables.METRICS.frame(self.replayed.metrics if self.replayed is not None else [])

    @property
    def ratios(self) -> pl.DataFrame:
        """Table `ratios`: quantities that are above zero in every run of both sides."""
        names, repeat = self.sides["side"].to_list(), 0 if self.replayed is None else self.replayed.repeat
        rows = []
        for quantity, column in QUANTITY_COLUMNS.items() if len(names) == 2 else ():
            left, right = (self.timings.filter(side=name).sort("repeat")[column].to_list() for name in names)
            interval = None
            if None not in left + right:
                interval = estimate_ratio(left, right, level=self.level, repeat=repeat)
            if interval is not None:
                ratio_row = {
                    "quantity": quantity,
                    "speed_ratio": interval.estimate,
                    "low_ratio": interval.low,
                    "high_ratio": interval.high,
                    "n": interval.n,
                    "verdict": stats.decide_verdicts([interval])[0].verdict,
                }
                rows.append(ratio_row)
        return RATIOS.frame(rows)

    @property
    def ratio(self) -> dict[str, Any] | None:
        """Row of `ratios` for the elapsed time of the operator; null where a run is not above 0."""
        return next((row for row in self.ratios.iter_rows(named=True) if row["quantity"] == "operator"), None)

    @property
    def differences(self) -> pl.DataFrame:
        """Table `differences`: the replay and the original, then A and B."""
        if self.replayed is None:
            return DIFFERENCES.frame([])
        verification = self.replayed.verification
        parts = {"only in the original": verification["missing"], "only in the replay": verification["extra"]}
        if (compared := self.replayed.comparison) is not None:
            parts |= {"only in A": compared["only_a"], "only in B": compared["only_b"]}
        return DIFFERENCES.frame(
            [
                {"compared": name, "position": number, "row": row}
                for name, rows in parts.items()
                for number, row in enumerate(rows, 1)
            ]
        )

    @property
    def partitions(self) -> pl.DataFrame:
        """Table `partitions` of inputs and output."""
        return self.inspection.partitions

    def count_missing_batches(self) -> int:
        """Number of batches that only plan.json or only the folder has."""
        if self.sidecar is None:
            return 0
        promised = {
            (f"input-{entry.index}", int(partition), batch)
            for entry in self.sidecar.inputs
            for partition, count in entry.batches.items()
            for batch in range(count)
        }
        inputs = self.inspection.batches.filter(pl.col("input") != "output")
        return len(promised ^ set(inputs.select("input", "partition", "batch").iter_rows()))

    @property
    def lore_id(self) -> int:
        """Id of the operator."""
        return self.inspection.dumps[0].lore_id

    @property
    def operator(self) -> str:
        """Name and id of the operator."""
        named = self.replayed.operator if self.replayed is not None else self.inspection.dumps[0].operator
        return f"{named or 'An unknown operator'} (loreId {self.lore_id})"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of an invalid result; empty when the replay gave the original output, on both sides."""
        if self.replayed is None:
            return (f"the dump was refused: {self.refused}",)
        reasons = [] if self.replayed.verification["passed"] else [self.replayed.answer]
        if self.replayed.not_accelerated:
            reasons.append(f"not accelerated: {self.replayed.not_accelerated}")
        if self.replayed.comparison is not None and not self.replayed.comparison["equal"]:
            compared = self.replayed.comparison
            reasons.append(f"A and B gave different rows ({compared['n_a']} and {compared['n_b']})")
        return tuple(reasons)

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Valid without reasons against it."""
        return "invalid" if self.reasons else "valid"

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """Declared tables with their rows, for the run folder."""
        inspected = [(declared, getattr(self.inspection, declared.name)) for declared in tables.INSPECTION_TABLES]
        replay_tables = [
            (tables.SIDES, self.sides),
            (tables.TIMINGS, self.timings),
            (tables.METRICS, self.metrics),
            (TIMES, self.times),
            (RATIOS, self.ratios),
            (DIFFERENCES, self.differences),
        ]
        return [*inspected, *replay_tables]


def inspect_and_replay(
    place: Path, *, level: float = stats.LEVEL, replay: Replay = replay_in_process, **options: Any
) -> ReplayOutcome:
    """Inspect a dump and replay it in another process; options are the fields of `ReplayOptions`.

    `replay`: A fresh process by default, or `LoreSession.replay` of a session that stays.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch:
        folder = open_bundle(place, Path(scratch) / "bundle") if place.suffix == ".zip" else place
        inspection = inspect_dumps(folder)
        if len(inspection.dumps) != 1:
            names = [dump.folder.name for dump in inspection.dumps]
            raise InputError("several operators were dumped here", where=place, allowed=names, do="name one of them")
        sidecar = inspection.dumps[0].sidecar
        if sidecar is None:
            return ReplayOutcome(place, inspection, None, None, _explain_no_replay(inspection.dumps[0].folder), level)
        # Replay a dump: its result, or null and the reason why it was refused.
        try:
            replayed, refused = replay(str(place.absolute()), **options), None
        except InputError as error:
            # The message of the other process, without its heading.
            replayed, refused = None, str(error.facts["found"] or error.what).removeprefix("Error: ")
    return ReplayOutcome(place, inspection, sidecar, replayed, refused, level)


def _explain_no_replay(folder: Path) -> str:
    try:
        read_sidecar(folder)
    except InputError as error:
        return str(error)
    return "plan.json is unusable"
