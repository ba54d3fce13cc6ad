"""The folder of a sweep: each step is in it as soon as it has ended, and a sweep that died can be gone on with."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench import __version__, files, holding, redaction, runs
from workbench.errors import InputError
from workbench.sizing.config import SweepConfig
from workbench.sizing.driving.limits import Spent, spent_by
from workbench.sizing.tables import REQUESTS, STEPS

if TYPE_CHECKING:
    import polars as pl

FORMAT_VERSION = 1
JOURNAL = "sweep.json"
MAX_JOURNAL_BYTES = 16 << 20
MOST_FAILURES = 20
AREA = "sizing"


class StepNote(BaseModel):
    """What the tables do not say about a step."""

    model_config = ConfigDict(extra="forbid")

    step: int = Field(ge=0)
    failures: dict[str, int] = Field(default={}, description="Outcome, status and words of the service, to how many.")
    limit: str | None = Field(default=None, description="The limit that ended it.")
    broken_off: int = Field(default=0, ge=0, description="Requests in flight that were not waited for; no rows.")


class SweepRecord(BaseModel):
    """What `sweep.json` says: the settings, without secrets, and notes on the steps."""

    model_config = ConfigDict(extra="forbid")

    format_version: int = FORMAT_VERSION
    package_version: str = __version__
    config: dict[str, Any]
    load_means: str = Field(description="What a level counts, in words.")
    prompts: dict[str, Any] = Field(default={}, description="Where prompts came from: file with sha256, or lengths.")
    notes: list[StepNote] = []
    finished: bool = Field(default=False, description="All levels were measured.")


@dataclass
class Journal:
    """A sweep as far as it is; in memory alone when there is no folder."""

    record: SweepRecord
    run: runs.Run | None = None
    secrets: tuple[str, ...] = ()
    requests: pl.DataFrame = field(default_factory=lambda: REQUESTS.frame([]))
    steps: pl.DataFrame = field(default_factory=lambda: STEPS.frame([]))

    @property
    def folder(self) -> Path | None:
        """Where it lies."""
        return None if self.run is None else self.run.folder

    @property
    def next_step(self) -> int:
        """Number of the next step."""
        return self.steps.height

    def spent(self) -> Spent:
        """What the steps have used up; requests that were broken off count as one each."""
        broken_off = sum(note.broken_off for note in self.record.notes)
        return spent_by(self.requests, self.steps).plus(Spent(requests=broken_off))

    def add(self, requests: pl.DataFrame, step: pl.DataFrame, note: StepNote) -> None:
        """Take in a step that has ended, and write it."""
        self.requests = self.requests.vstack(requests)
        self.steps = self.steps.vstack(step)
        told = {redaction.clean(text, self.secrets): count for text, count in list(note.failures.items())}
        self.record.notes.append(note.model_copy(update={"failures": dict(list(told.items())[:MOST_FAILURES])}))
        if self.run is not None:
            # In this order: a step counts once it stands in the journal, which is written last.
            self.run.write_table(REQUESTS, self.requests)
            self.run.write_table(STEPS, self.steps)
            self._save()

    def finish(self) -> None:
        """All levels were measured."""
        self.record.finished = True
        self._save()

    def _save(self) -> None:
        if self.run is not None:
            text = json.dumps(redaction.clean(self.record.model_dump(mode="json"), self.secrets), indent=1)
            files.write_text(self.run.folder / JOURNAL, text + "\n")


def create(
    config: SweepConfig, *, out: Path | None, keep: bool, prompts: dict[str, Any], command: str | None
) -> Journal:
    """A new sweep, in a new folder below `out` (the usual place without one), or in memory only.

    Raises
    ------
    ConfigError
        The folder cannot be made.
    """
    described = config.model_dump(mode="json", exclude_defaults=True)
    record = SweepRecord(config=described, load_means=config.load_means, prompts=prompts)
    journal = Journal(record, secrets=redaction.values(config.header_env.values()))
    if keep:
        journal.run = runs.start(AREA, out, title="How does latency grow with load?", config=described, command=command)
        journal._save()
    return journal


def resume(folder: str | Path) -> tuple[Journal, SweepConfig]:
    """A sweep as it was left, with its settings; a step that had not ended is not in it.

    Raises
    ------
    InputError
        There is no sweep, it is none of ours or of a newer workbench, or its tables do not fit.
    """
    path = Path(folder) / JOURNAL
    record = _read(path)
    try:
        config = SweepConfig(**record.config)
    except ValidationError as error:
        raise InputError("not the settings of a sweep", where=path, found=str(error)[:300]) from error
    journal = Journal(record, runs.load(folder), redaction.values(config.header_env.values()))
    if record.notes:
        import polars as pl

        known = pl.Series("step", [note.step for note in record.notes], dtype=pl.Int64)
        tables = journal.run.tables_folder if journal.run is not None else Path(folder)
        # A crash may have left rows of a step that the journal does not know.
        journal.requests = REQUESTS.read(tables).filter(pl.col("step").is_in(known.implode()))
        journal.steps = STEPS.read(tables).filter(pl.col("step").is_in(known.implode()))
        if journal.steps["step"].to_list() != list(range(len(record.notes))):
            raise InputError("steps of the sweep are missing", where=tables, found=journal.steps["step"].to_list())
    return journal, config


def _read(path: Path) -> SweepRecord:
    try:
        if path.stat().st_size > MAX_JOURNAL_BYTES:
            raise InputError("not a sweep", where=path, found=f"more than {MAX_JOURNAL_BYTES >> 20} MiB")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            "no sweep here", where=path.parent, found=f"no {JOURNAL}", do="workbench sizing run"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("unreadable sweep", where=path, found=str(error)[:200]) from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise InputError(
            "sweep of a newer workbench",
            where=path,
            found=f"format version {version}",
            allowed=f"up to {FORMAT_VERSION}",
            do="pip install --upgrade accelerated-workbench",
        )
    try:
        return SweepRecord.model_validate(found)
    except ValidationError as error:
        raise InputError("not a sweep", where=path, found=str(error)[:300]) from error


@contextlib.contextmanager
def ending(run: runs.Run | None) -> Iterator[None]:
    """Within, an error closes the run's record as failed: its steps are kept, and it can be gone on with."""
    try:
        yield
    except BaseException as error:
        if run is not None:
            name = type(error).__name__
            run.end("failed", {"cell_number": None, "source": None, "error_name": name, "error": str(error)})
        raise


def alone_in(folder: Path | None) -> contextlib.AbstractContextManager[None]:
    """Within, no other sweep writes into the folder; nothing is held without one. See `workbench.holding.alone`."""
    if folder is None:
        return contextlib.nullcontext()
    return holding.alone(folder, "another sweep writes into this folder")
