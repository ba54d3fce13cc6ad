"""The file recording.json: queries, data, settings, sessions and machine of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PrivateAttr

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.schema import StrictModel, read_model_file

if TYPE_CHECKING:
    import polars as pl

FORMAT_VERSION = 1
JOURNAL = "recording.json"
MAX_JOURNAL_BYTES = 32 << 20
# Verdicts on an answer that let the query's executions count.
GOOD_VERDICTS = ("reference", "equal", "equal up to ties at the limit")
# Shares of the CPU that others may use during a session; more slows down the queries.
MAX_OTHER_LOAD = 0.1
# Tables kept instead of the logs.
FACTS_FOLDER = "facts"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}$"


def _check_relative_path(text: str) -> str:
    """Refuse a path that leaves the recording's folder."""
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in text or ":" in text or "\0" in text:
        raise ValueError("must be a path inside the recording's folder, relative to it")
    return text


class _JournalPart(StrictModel):
    model_config = ConfigDict(frozen=False)


class RecordedSuite(_JournalPart):
    """The queries."""

    name: str = Field(description="tpch, tpcds, or the name of the user's file or module.")
    queries: list[str] = Field(min_length=1, description="Their names, in the suite's order.")
    sha256: str = Field(description="Digest of names and texts.")


class Data(_JournalPart):
    """The tables that the queries read."""

    source: str = Field(description='Generator with its version, "folder", or the URL.')
    scale: float | None = Field(
        default=None, description="Scale factor of the benchmark; null for the user's own data."
    )
    views: list[str] = Field(default=[], description="Names of the tables; empty when only Spark can list them.")
    fingerprint: str | None = Field(default=None, description="Digest of names and sizes of the files; null for URLs.")


class Side(_JournalPart):
    """An engine with its settings."""

    label: str = Field(pattern=LABEL, description="Name of the side.")
    engine: str = Field(description="Engine, such as spark or comet.")
    settings: dict[str, str] = Field(description="Spark settings of this side only, without paths.")
    jar: str | None = Field(default=None, description="Name of the engine's jar.")
    jar_sha256: str | None = Field(default=None, description="Its digest.")


class Session(_JournalPart):
    """One fresh JVM of one side."""

    label: str = Field(pattern=LABEL, description="Name of the side.")
    session: int = Field(ge=1, description="Number within the side.")
    status: Literal["ok", "failed"] = Field(description="ok: all passes ran and the log is complete.")
    log: Annotated[str, AfterValidator(_check_relative_path)] | None = Field(
        description="Its event log, inside the folder; null for a failed session, and where facts are kept instead."
    )
    log_sha256: str | None = Field(default=None, description="Digest of the log's file.")
    n_passes: int = Field(ge=0, description="Complete passes.")
    n_failed: int = Field(default=0, ge=0, description="Executions that failed.")
    started_at: datetime = Field(description="UTC.")
    duration_s: float = Field(ge=0, description="Run time of the process.")
    load_per_core: float | None = Field(default=None, description="Load average of the minute before the start.")
    busy_share: float | None = Field(default=None, description="Share of the CPU in use just before the start.")
    other_cpu_share: float | None = Field(
        default=None, description="Share of the machine's CPU used by other programs while the queries ran."
    )
    steal_share: float | None = Field(default=None, description="Share of it taken by other virtual machines.")
    spark_version: str | None = None
    java_version: str | None = None
    warnings: list[str] = Field(default=[], description="Possible disturbances, and traces of the machine in the log.")
    error: str | None = Field(default=None, description="Why it failed.")

    @property
    def file_name(self) -> str:
        """Name of its log."""
        return f"{self.label}-s{self.session}.zstd"


class Recording(_JournalPart):
    """Content of `recording.json`; `folder` is the folder that holds it."""

    format_version: Literal[1] = 1
    created_at: datetime
    package_version: str
    suite: RecordedSuite
    data: Data
    seed: int
    n_sessions: int = Field(ge=1, description="Requested sessions per side.")
    n_passes: int = Field(ge=1, description="Passes per session.")
    power_run: bool = Field(default=False, description="Each query once in stream order, with its times in `power/`.")
    master: str
    settings: dict[str, str] = Field(description="Spark settings that all sides share.")
    scrubbed: bool
    sides: list[Side] = Field(min_length=1)
    sessions: list[Session] = Field(default=[])
    excluded: dict[str, dict[str, str]] = Field(
        default={}, description="Side to query to why its executions do not count: wrong answer, failed, …"
    )
    host: dict[str, Any] = Field(default={})
    versions: dict[str, str] = Field(default={})
    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """Folder of the recording."""
        return self._folder

    @property
    def labels(self) -> list[str]:
        """Names of the sides; the first is the baseline, and its answers are the reference."""
        return [side.label for side in self.sides]

    @property
    def complete(self) -> bool:
        """Whether all requested sessions have run."""
        good_keys = {(session.label, session.session) for session in self.sessions if session.status == "ok"}
        return len(good_keys) >= len(self.sides) * self.n_sessions

    def find_side(self, label: str) -> Side:
        """The side of this name."""
        named_side = next((side for side in self.sides if side.label == label), None)
        if named_side is None:
            raise InputError("no such side in the recording", where=self.folder, found=label, allowed=self.labels)
        return named_side

    def list_good_sessions(self, label: str | None = None) -> list[Session]:
        """The good sessions, in the order of sides and numbers."""
        order = {name: place for place, name in enumerate(self.labels)}
        sessions = [session for session in self.sessions if session.status == "ok" and label in (None, session.label)]
        return sorted(sessions, key=lambda session: (order[session.label], session.session))

    def iterate_logs(self, label: str | None = None) -> Iterator[tuple[str, int, Path]]:
        """Side, session number and event log of each good session whose log is kept, in the same order."""
        for session in self.list_good_sessions(label):
            if session.log:
                yield session.label, session.session, self.folder / session.log

    def list_bad_queries(self) -> set[str]:
        """Queries whose executions do not count on at least one side, and therefore in no pair."""
        return {query for queries in self.excluded.values() for query in queries}

    def read_executions(self) -> pl.DataFrame:
        """Table `executions` of the good sessions; empty if nothing was recorded."""
        import polars as pl

        from workbench.speedup import tables

        if not tables.RECORDED_EXECUTIONS.path(self.folder).exists():
            return tables.RECORDED_EXECUTIONS.frame([])
        # A crash may have left rows of a session that is not in the journal.
        keys = [{"label": session.label, "session": session.session} for session in self.list_good_sessions()]
        sessions = pl.DataFrame(keys, schema={"label": pl.String, "session": pl.Int64})
        return tables.RECORDED_EXECUTIONS.read(self.folder).join(sessions, on=["label", "session"], how="semi")

    def read_answers(self) -> pl.DataFrame:
        """Table `answers`."""
        from workbench.speedup import tables

        return tables.ANSWERS.read(self.folder)

    def write(self) -> None:
        """Write `recording.json` atomically."""
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write_text(self._folder / JOURNAL, self.model_dump_json(indent=1) + "\n")

    def move_to(self, folder: Path) -> Recording:
        """Set the folder, and return the recording."""
        self._folder = folder
        return self


def load_recording(folder: str | Path) -> Recording:
    """Read a recording.

    Returns: Sides, sessions with their event logs (`iterate_logs()`), and queries that do not count (`excluded`,
    `list_bad_queries()`). Logs of good sessions exist inside the folder, symbolic links followed.
    """
    folder = Path(folder)
    path = folder / JOURNAL
    if not path.exists():
        do = "record one: workbench speedup record --engine spark --engine comet --out DIR"
        raise InputError("no recording here", where=folder, found=f"no {JOURNAL}", do=do)
    recording = read_model_file(
        Recording, path, noun="recording", max_bytes=MAX_JOURNAL_BYTES, max_version=FORMAT_VERSION
    ).move_to(folder)
    _check_recording(recording, path)
    return recording


def _check_recording(recording: Recording, path: Path) -> None:
    labels = recording.labels
    if len(set(labels)) != len(labels):
        raise InputError("a side is named twice", where=path, found=labels)
    seen: set[tuple[str, int]] = set()
    for session in recording.sessions:
        name = (session.label, session.session)
        if session.label not in labels or (session.status == "ok" and name in seen):
            raise InputError("sessions do not fit the sides", where=path, found=f"{name[0]} {name[1]}", allowed=labels)
        if session.status == "ok":
            seen.add(name)
    root = recording.folder.resolve()
    for label, number, log in recording.iterate_logs():
        if not log.exists():
            raise InputError("the event log of a session is missing", where=path, found=f"{label} {number}: {log.name}")
        if not log.resolve().is_relative_to(root):
            raise InputError("the event log of a session lies outside the recording", where=path, found=str(log.name))
