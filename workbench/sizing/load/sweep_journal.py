"""Sweep folder: writes each step as it ends, so that an interrupted sweep can resume."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ConfigDict, Field

from workbench import __version__
from workbench.core import files, locks, redaction
from workbench.core.errors import InputError
from workbench.core.schema import StrictModel, read_model_file, validate_model
from workbench.runs import run_folder
from workbench.sizing.config import SweepConfig
from workbench.sizing.load.sweep_plan import SweepUsage, usage_from_tables
from workbench.sizing.tables import REQUESTS, SERVER_METRICS, STEPS

FORMAT_VERSION = 1
JOURNAL_NAME = "sweep.json"
MAX_JOURNAL_BYTES = 16 << 20
MAX_STORED_FAILURES = 20
SIZING_AREA = "sizing"


class StepNote(StrictModel):
    """Facts about a step that the tables do not hold."""

    step: int = Field(ge=0)
    failures: dict[str, int] = Field(
        default={}, description="Number of failures by outcome, status and kind of message."
    )
    limit: str | None = Field(default=None, description="Limit that ended the step.")
    broken_off: int = Field(default=0, ge=0, description="Requests in flight that were aborted; they have no rows.")
    notes: list[str] = Field(default=[], description="What the client changed in its requests, and why.")


class SweepRecord(StrictModel):
    """Content of `sweep.json`: settings without secrets, and notes on the steps."""

    model_config = ConfigDict(frozen=False)

    format_version: int = FORMAT_VERSION
    package_version: str = __version__
    config: dict[str, Any]
    load_means: str = Field(description="Meaning of a level, in words.")
    prompts: dict[str, Any] = Field(default={}, description="Source of the prompts: file with sha256, or lengths.")
    notes: list[StepNote] = Field(default=[])
    finished: bool = Field(default=False, description="All levels were measured.")


@dataclass
class SweepJournal:
    """Steps of a sweep so far; in memory only where there is no folder."""

    record: SweepRecord
    run: run_folder.Run | None = None
    secrets: tuple[str, ...] = ()
    requests: pl.DataFrame = field(default_factory=lambda: REQUESTS.frame([]))
    steps: pl.DataFrame = field(default_factory=lambda: STEPS.frame([]))
    server_metrics: pl.DataFrame = field(default_factory=lambda: SERVER_METRICS.frame([]))

    @property
    def folder(self) -> Path | None:
        """Folder of the sweep; None in memory."""
        return None if self.run is None else self.run.folder

    @property
    def next_step(self) -> int:
        """Number of the next step."""
        return self.steps.height

    def total_usage(self) -> SweepUsage:
        """Usage of all steps; an aborted request counts once."""
        broken_off = sum(note.broken_off for note in self.record.notes)
        return usage_from_tables(self.requests, self.steps).combine_with(SweepUsage(requests=broken_off))

    def add_step(
        self, requests: pl.DataFrame, step: pl.DataFrame, note: StepNote, server_metrics: pl.DataFrame | None = None
    ) -> None:
        """Add the rows of a finished step to the tables REQUESTS, STEPS and SERVER_METRICS, and write them."""
        self.requests = self.requests.vstack(requests)
        self.steps = self.steps.vstack(step)
        if server_metrics is not None:
            self.server_metrics = self.server_metrics.vstack(server_metrics)
        redacted = {redaction.redact_value(text, self.secrets): count for text, count in note.failures.items()}
        failures = dict(list(redacted.items())[:MAX_STORED_FAILURES])
        self.record.notes.append(note.model_copy(update={"failures": failures}))
        if self.run is not None:
            # The journal is written last: a step counts once it is in there.
            self.run.write_table(REQUESTS, self.requests)
            self.run.write_table(STEPS, self.steps)
            if self.server_metrics.height:
                self.run.write_table(SERVER_METRICS, self.server_metrics)
            self._write_record()

    def mark_complete(self) -> None:
        """Record that all levels were measured."""
        self.record.finished = True
        self._write_record()

    def _write_record(self) -> None:
        if self.run is not None:
            text = json.dumps(redaction.redact_value(self.record.model_dump(mode="json"), self.secrets), indent=1)
            files.write_text(self.run.folder / JOURNAL_NAME, text + "\n")


def create_sweep_journal(
    config: SweepConfig, *, out: Path | None, keep: bool, prompts: dict[str, Any], command: str | None
) -> SweepJournal:
    """Start a sweep in a new folder below `out` (by default the runs folder), or in memory without `keep`."""
    described = config.model_dump(mode="json", exclude_defaults=True)
    record = SweepRecord(config=described, load_means=config.load_means, prompts=prompts)
    journal = SweepJournal(record, secrets=redaction.read_secrets(config.header_env.values()))
    if keep:
        journal.run = run_folder.start_run(
            SIZING_AREA, out, title="How does latency grow with load?", config=described, command=command
        )
        journal._write_record()
    return journal


def load_sweep_journal(folder: str | Path) -> tuple[SweepJournal, SweepConfig]:
    """Load a sweep and its settings; an unfinished step is left out."""
    path = Path(folder) / JOURNAL_NAME
    if not path.is_file():
        raise InputError("no sweep here", where=folder, found=f"no {JOURNAL_NAME}", do="workbench sizing run")
    record = read_model_file(SweepRecord, path, noun="sweep", max_bytes=MAX_JOURNAL_BYTES, max_version=FORMAT_VERSION)
    config = validate_model(SweepConfig, record.config, noun="sweep's settings", where=path, show_values=False)
    journal = SweepJournal(record, run_folder.load_run(folder), redaction.read_secrets(config.header_env.values()))
    if record.notes:
        import polars as pl

        step_numbers = pl.Series("step", [note.step for note in record.notes], dtype=pl.Int64)
        tables = journal.run.tables_folder if journal.run is not None else Path(folder)
        # After a crash the tables may have rows of a step that the journal does not have.
        journal.requests = REQUESTS.read(tables).filter(pl.col("step").is_in(step_numbers.implode()))
        journal.steps = STEPS.read(tables).filter(pl.col("step").is_in(step_numbers.implode()))
        if SERVER_METRICS.path(tables).is_file():
            journal.server_metrics = SERVER_METRICS.read(tables).filter(pl.col("step").is_in(step_numbers.implode()))
        if journal.steps["step"].to_list() != list(range(len(record.notes))):
            raise InputError("steps of the sweep are missing", where=tables, found=journal.steps["step"].to_list())
    return journal, config


@contextlib.contextmanager
def record_failure(run: run_folder.Run | None) -> Iterator[None]:
    """Mark the run as failed where the block raises; its steps are kept and it can be resumed."""
    try:
        yield
    except BaseException as error:
        if run is not None:
            run.end("failed", run_folder.build_failure(type(error).__name__, str(error)))
        raise


def lock_sweep_folder(folder: Path | None) -> contextlib.AbstractContextManager[None]:
    """Keep other sweeps from writing into the folder inside the block; does nothing without a folder."""
    if folder is None:
        return contextlib.nullcontext()
    return locks.lock_exclusively(folder, "another sweep writes into this folder")
