"""`recording.json`: what was recorded, with which settings, on what; read by everything that uses a recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from workbench import files
from workbench.errors import InputError

if TYPE_CHECKING:
    import polars as pl

FORMAT_VERSION = 1
JOURNAL = "recording.json"
MAX_JOURNAL_BYTES = 32 << 20
# Verdicts on an answer that let the query's executions count.
GOOD_VERDICTS = ("reference", "equal", "equal up to ties at the limit")
LABEL = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}$"


def _inside(text: str) -> str:
    """A path in the journal stays inside the recording's folder, whoever wrote it."""
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in text or ":" in text or "\0" in text:
        raise ValueError("must be a path inside the recording's folder, relative to it")
    return text


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Suite(_Part):
    """Which queries."""

    name: str = Field(description="tpch, or the stem of the user's file or module.")
    queries: list[str] = Field(min_length=1, description="Their names, in the suite's order.")
    sha256: str = Field(description="Digest of names and texts.")


class Data(_Part):
    """On which tables."""

    source: str = Field(description="tpchgen-cli with its version, folder, or the URL.")
    scale: float | None = Field(default=None, description="TPC-H scale factor; null for the user's own data.")
    views: list[str] = Field(default=[], description="Names of the tables; empty when only Spark can list them.")
    fingerprint: str | None = Field(default=None, description="Digest of names and sizes of the files; null for URLs.")


class Side(_Part):
    """An engine with its settings, under a name."""

    label: str = Field(pattern=LABEL, description="Name of the side.")
    engine: str = Field(description="spark, comet.")
    settings: dict[str, str] = Field(description="Spark settings of this side alone; no paths.")
    jar: str | None = Field(default=None, description="Name of the engine's jar.")
    jar_sha256: str | None = Field(default=None, description="Its digest.")


class Session(_Part):
    """One fresh JVM of one side."""

    label: str = Field(pattern=LABEL, description="Name of the side.")
    session: int = Field(ge=1, description="Number within the side.")
    status: Literal["ok", "failed"] = Field(description="ok: all passes were run, the log is whole.")
    log: Annotated[str, AfterValidator(_inside)] | None = Field(description="Its event log, inside the folder.")
    log_sha256: str | None = Field(default=None, description="Digest of the log's file.")
    n_passes: int = Field(ge=0, description="Passes that were run in full.")
    n_failed: int = Field(default=0, ge=0, description="Executions that failed.")
    started_at: datetime = Field(description="UTC.")
    duration_s: float = Field(ge=0, description="From the start of the process to its end.")
    load_per_core: float | None = Field(default=None, description="Load average of the last minute before the start.")
    busy_share: float | None = Field(default=None, description="Processors in use by others just before the start.")
    spark_version: str | None = None
    java_version: str | None = None
    warnings: list[str] = Field(default=[], description="What may have spoilt it; where its log tells of the machine.")
    error: str | None = Field(default=None, description="Why it failed.")


class Recording(_Part):
    """What `recording.json` says; `folder` is where it was read from."""

    format_version: Literal[1] = 1
    created_at: datetime
    package_version: str
    suite: Suite
    data: Data
    seed: int
    n_sessions: int = Field(ge=1, description="Sessions a side that were asked for.")
    n_passes: int = Field(ge=1, description="Passes a session.")
    master: str
    settings: dict[str, str] = Field(description="Spark settings that all sides share.")
    scrubbed: bool
    sides: list[Side] = Field(min_length=1)
    sessions: list[Session] = []
    excluded: dict[str, dict[str, str]] = Field(
        default={}, description="Side to query to why its executions do not count: wrong answer, failed, …"
    )
    host: dict[str, Any] = {}
    versions: dict[str, str] = {}
    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """Where the recording lies."""
        return self._folder

    @property
    def labels(self) -> list[str]:
        """Names of the sides; the first is the baseline, whose answers are the reference."""
        return [side.label for side in self.sides]

    @property
    def complete(self) -> bool:
        """Did every session that was asked for run?"""
        done = {(session.label, session.session) for session in self.sessions if session.status == "ok"}
        return len(done) >= len(self.sides) * self.n_sessions

    def side(self, label: str) -> Side:
        """The side of this name.

        Raises
        ------
        InputError
            There is none.
        """
        found = next((side for side in self.sides if side.label == label), None)
        if found is None:
            raise InputError("no such side in the recording", where=self.folder, found=label, allowed=self.labels)
        return found

    def logs(self, label: str | None = None) -> Iterator[tuple[str, int, Path]]:
        """Side, number of the session and event log of each good session, in the order of sides and numbers."""
        order = {name: place for place, name in enumerate(self.labels)}
        for session in sorted(self.sessions, key=lambda one: (order[one.label], one.session)):
            if session.status == "ok" and session.log and label in (None, session.label):
                yield session.label, session.session, self.folder / session.log

    def bad_queries(self) -> set[str]:
        """Queries whose executions do not count for some side, and so for no pair."""
        return {query for queries in self.excluded.values() for query in queries}

    def executions(self) -> pl.DataFrame:
        """Table `executions`: those of the good sessions; no row when none was recorded."""
        import polars as pl

        from workbench.speedup.recording import tables

        if not tables.EXECUTIONS.path(self.folder).exists():
            return tables.EXECUTIONS.frame([])
        # A crash may have left rows of a session that was never noted.
        known = [{"label": label, "session": number} for label, number, _ in self.logs()]
        sessions = pl.DataFrame(known, schema={"label": pl.String, "session": pl.Int64})
        return tables.EXECUTIONS.read(self.folder).join(sessions, on=["label", "session"], how="semi")

    def answers(self) -> pl.DataFrame:
        """Table `answers`."""
        from workbench.speedup.recording import tables

        return tables.ANSWERS.read(self.folder)

    def save(self) -> None:
        """Write `recording.json`, whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write_text(self._folder / JOURNAL, self.model_dump_json(indent=1) + "\n")

    def at(self, folder: Path) -> Recording:
        """The same one, lying in this folder."""
        self._folder = folder
        return self


def load(folder: str | Path) -> Recording:
    """What was recorded into this folder?

    Parameters
    ----------
    folder
        Where `workbench speedup record --out` wrote to.

    Returns
    -------
    Recording
        Sides, sessions with their event logs (`logs()`), queries that do not count (`excluded`, `bad_queries()`).
        Logs of good sessions are there and lie inside the folder, symbolic links followed.

    Raises
    ------
    InputError
        There is no recording.json, it is none of ours or of a newer workbench, it names a path outside its folder or
        a side twice, or the log of a good session is missing.
    """
    folder = Path(folder)
    path = folder / JOURNAL
    found = _parsed(path)
    try:
        recording = Recording.model_validate(found).at(folder)
    except ValidationError as error:
        raise InputError("not a recording", where=path, found=_problems(error)) from error
    _check(recording, path)
    return recording


def _parsed(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_JOURNAL_BYTES:
            raise InputError("not a recording", where=path, found=f"more than {MAX_JOURNAL_BYTES >> 20} MiB")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        do = "record one: workbench speedup record --engine spark --engine comet --out DIR"
        raise InputError("no recording here", where=path.parent, found=f"no {JOURNAL}", do=do) from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("unreadable recording", where=path, found=str(error)[:200]) from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise InputError(
            "recording of a newer workbench",
            where=path,
            found=f"format version {version}",
            allowed=f"up to {FORMAT_VERSION}",
            do="pip install --upgrade accelerated-workbench",
        )
    if not isinstance(found, dict):
        raise InputError("not a recording", where=path, found=type(found).__name__)
    return found


def _problems(error: ValidationError) -> list[str]:
    listed = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}"[:160] for one in error.errors(include_url=False)]
    return listed[:8] + ([f"and {len(listed) - 8} more"] if len(listed) > 8 else [])


def _check(recording: Recording, path: Path) -> None:
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
    for label, number, log in recording.logs():
        if not log.exists():
            raise InputError("the event log of a session is missing", where=path, found=f"{label} {number}: {log.name}")
        if not log.resolve().is_relative_to(root):
            raise InputError("the event log of a session lies outside the recording", where=path, found=str(log.name))
