"""One folder a run: run.json, tables/*.parquet, report.ipynb, report.html; whole files, versioned, never a secret.

`OUT/<area>/<run id>/`; OUT is `data/runs` in the checkout, or the user's cache where that cannot be written.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench import __version__, files, host, redaction
from workbench.errors import ConfigError, InputError

if TYPE_CHECKING:
    import polars as pl

    from workbench.tables import Table

FORMAT_VERSION = 1
RUN_DIR_VARIABLE = "WORKBENCH_RUN_DIR"
OUT_VARIABLE = "WORKBENCH_OUT"
RECORD = "run.json"
CHECKOUT = Path(__file__).resolve().parents[1]

Status = Literal["running", "succeeded", "failed", "cancelled"]
Verdict = Literal["valid", "invalid"]
Json = dict[str, Any]

# From the format version that it reads to the function that makes the next one of it.
UPGRADES: dict[int, Callable[[Json], Json]] = {}
_REQUIRED = ("run_id", "area", "title", "status", "started_at", "config", "inputs", "tables", "verdict", "reasons")
_live: dict[str, Run] = {}


@dataclass
class Run:
    """A run folder and what its run.json says; every change is written at once, as a whole file.

    Attributes
    ----------
    folder
        The run folder.
    record
        The content of run.json, format version 1.
    """

    folder: Path
    record: Json

    @property
    def run_id(self) -> str:
        """Its name: UTC start and six random hex digits."""
        return str(self.record["run_id"])

    @property
    def area(self) -> str:
        """The notebook's stem without its number."""
        return str(self.record["area"])

    @property
    def title(self) -> str:
        """The question that the notebook asks."""
        return str(self.record["title"])

    @property
    def status(self) -> str:
        """running, succeeded, failed or cancelled."""
        return str(self.record["status"])

    @property
    def verdict(self) -> str | None:
        """valid, invalid, or null when the run did not get that far."""
        verdict = self.record["verdict"]
        return None if verdict is None else str(verdict)

    @property
    def answer(self) -> str | None:
        """The sentence that answers the question; null when there is none."""
        answer = self.record.get("answer")
        return None if answer is None else str(answer)

    @property
    def tables_folder(self) -> Path:
        """Where the Parquet files lie."""
        return self.folder / "tables"

    @property
    def report(self) -> Path:
        """The page, which is there once the run has ended."""
        return self.folder / "report.html"

    def write_table(self, table: Table, frame: pl.DataFrame) -> Path:
        """Check a frame against its declaration, write it to `tables/` and note its rows in run.json.

        Text columns are cleaned of secrets that this run was given. A table written again replaces the first.

        Raises
        ------
        InputError
            The frame is not the declared table.
        """
        path = table.write(redaction.clean_frame(frame), self.tables_folder)
        others = [entry for entry in self.record["tables"] if entry["name"] != table.name]
        self.record["tables"] = [*others, {"name": table.name, "rows": frame.height}]
        self.save()
        return path

    def read_table(self, table: Table) -> pl.DataFrame:
        """Read a table of this run back, checked."""
        return table.read(self.tables_folder)

    def add_input(self, path: str | Path, *, digest: bool = True) -> None:
        """Note an input with its bytes and sha256; a folder counts as its files, a URL is noted by name alone.

        Without `digest` its sha256 is null: hashing takes about 0.6 s per GB.

        Raises
        ------
        InputError
            A local path is not there or cannot be read.
        """
        entry = _input_entry(path, digest=digest)
        self.record["inputs"] = [*(old for old in self.record["inputs"] if old["path"] != entry["path"]), entry]
        self.save()

    def conclude(self, verdict: Verdict, reasons: Iterable[str] = (), answer: str | None = None) -> None:
        """Say whether the run is valid, why (not), and the answer in one sentence; ends a live run.

        Raises
        ------
        ConfigError
            The verdict is neither valid nor invalid, or invalid without a reason.
        """
        listed = [reasons] if isinstance(reasons, str) else [str(reason) for reason in reasons]
        if verdict not in ("valid", "invalid"):
            raise ConfigError("unknown verdict", where="Run.conclude", found=verdict, allowed=["valid", "invalid"])
        if verdict == "invalid" and not listed:
            raise ConfigError("an invalid run needs a reason", where="Run.conclude", do="pass reasons=[…]")
        self.record |= {"verdict": verdict, "reasons": listed, "answer": answer}
        if not os.environ.get(RUN_DIR_VARIABLE):
            self.end("succeeded")
        else:
            self.save()

    def end(self, status: Status, failure: Json | None = None) -> None:
        """Close the run: status, end time, duration, and what failed."""
        now = datetime.now(UTC)
        started = datetime.fromisoformat(self.record["started_at"])
        self.record |= {
            "status": status,
            "ended_at": now.isoformat(timespec="milliseconds"),
            "duration_s": round((now - started).total_seconds(), 3),
            "failure": failure,
        }
        self.save()

    def save(self) -> None:
        """Write run.json, cleaned of secrets, whole or not at all."""
        clean = redaction.clean(self.record)
        files.write_text(self.folder / RECORD, json.dumps(clean, indent=1, ensure_ascii=False, default=str) + "\n")


def start(
    area: str,
    out: str | Path | None = None,
    *,
    folder: str | Path | None = None,
    title: str | None = None,
    notebook: str | None = None,
    config: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> Run:
    """Make a new run folder below `out` (`default_out()` without one), or just `folder`; write its first run.json.

    Raises
    ------
    ConfigError
        The folder cannot be made, or a key of `config` is named like a secret.
    """
    now = datetime.now(UTC)
    _refuse_secrets(config or {})
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    if folder is None:
        folder = (Path(out) if out is not None else default_out()) / area / run_id
    folder = Path(folder).absolute()
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            "cannot make the run folder", where=folder, found=error.strerror, do="choose another with --out DIR"
        ) from error
    run = Run(folder, _first_record(run_id, area, now))
    run.record |= {"title": title or area.replace("_", " ").capitalize(), "notebook": notebook, "command": command}
    run.record["config"] = dict(config or {})
    run.save()
    return run


def _first_record(run_id: str, area: str, now: datetime) -> Json:
    return {
        "format_version": FORMAT_VERSION,
        "run_id": run_id,
        "area": area,
        "title": area,
        "notebook": None,
        "status": "running",
        "started_at": now.isoformat(timespec="milliseconds"),
        "ended_at": None,
        "duration_s": None,
        "config": {},
        "command": None,
        "package_version": __version__,
        "git_commit": host.git_commit(CHECKOUT),
        "versions": host.versions(),
        "host": host.facts(),
        "inputs": [],
        "tables": [],
        "verdict": None,
        "reasons": [],
        "answer": None,
        "failure": None,
    }


def attach(folder: str | Path) -> Run:
    """The run that somebody else started: what a notebook's kernel does with $WORKBENCH_RUN_DIR."""
    return load(folder)


def current(area: str, *, config: Mapping[str, Any] | None = None) -> Run:
    """The run that this notebook belongs to.

    Started by `workbench run`, it is that run folder. Live in JupyterLab, a new folder is made below `default_out()`;
    asked again before `conclude`, the same one is given, so that running a cell twice leaves one folder.
    """
    if folder := os.environ.get(RUN_DIR_VARIABLE):
        return attach(folder)
    run = _live.get(area)
    if run is None or run.status != "running" or not run.folder.is_dir():
        run = _live[area] = start(area, config=config, command="live")
    return run


def load(folder: str | Path) -> Run:
    """Read a run folder; an older run.json is upgraded in memory, a newer one refused.

    Raises
    ------
    InputError
        There is no run.json, it is no run record, or its format is newer than this version of the workbench.
    """
    path = Path(folder) / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError("not a run folder", where=folder, found=f"no {RECORD}", do="workbench runs list") from error
    except (OSError, ValueError) as error:
        raise InputError("unreadable run record", where=path, found=str(error)[:200]) from error
    record = _upgraded(record, path)
    if missing := [name for name in _REQUIRED if name not in record]:
        raise InputError("not a run record", where=path, found="missing: " + ", ".join(missing))
    return Run(Path(folder).absolute(), record)


def _upgraded(record: Any, path: Path) -> Json:
    version = record.get("format_version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError("not a run record", where=path, found="no format_version")
    if version > FORMAT_VERSION:
        raise InputError(
            "run record of a newer workbench",
            where=path,
            found=f"format version {version}",
            allowed=f"up to {FORMAT_VERSION}",
            do="pip install --upgrade accelerated-workbench",
        )
    while version < FORMAT_VERSION:
        if version not in UPGRADES:
            raise InputError("run record of an unknown format", where=path, found=f"format version {version}")
        record = UPGRADES[version](dict(record))
        version += 1
        record["format_version"] = version
    return dict(record)


def find(folder: str | Path, *, unreadable: Callable[[InputError], None] | None = None) -> list[Run]:
    """All runs below a folder, newest first.

    Parameters
    ----------
    folder
        Where to look, at any depth; a folder that is not there has no runs.
    unreadable
        Called with the error of each run.json that cannot be read; without it those are left out.
    """
    found = []
    for path in sorted(Path(folder).rglob(RECORD)):
        try:
            found.append(load(path.parent))
        except InputError as error:
            if unreadable:
                unreadable(error)
    return sorted(found, key=lambda run: (str(run.record["started_at"]), run.run_id), reverse=True)


def _refuse_secrets(config: Mapping[str, Any]) -> None:
    named = [name for name in config if redaction.names_a_secret(name)]
    if named:
        raise ConfigError(
            "a secret cannot be part of a run's record",
            where=", ".join(named),
            do="pass the name of an environment variable instead, such as api_key_env",
        )


def _input_entry(path: str | Path, *, digest: bool = True) -> Json:
    if "://" in str(path):
        return {"path": redaction.without_user_info(str(path)), "bytes": None, "sha256": None}
    path = Path(path)
    members = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    try:
        size_bytes = sum(file.stat().st_size for file in members)
        found = None
        if digest:
            found = files.sha256(path) if not path.is_dir() else _folder_digest(path, members)
    except OSError as error:
        raise InputError("cannot read the input", where=path, found=error.strerror) from error
    full = path.resolve()
    # Samples are named alike on every machine; other people's paths stay as they are.
    shown = full.relative_to(CHECKOUT).as_posix() if full.is_relative_to(CHECKOUT) else str(full)
    return {"path": shown, "bytes": size_bytes, "sha256": found}


def _folder_digest(folder: Path, members: list[Path]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for file in members:
        digest.update(f"{file.relative_to(folder).as_posix()}\0{files.sha256(file)}\n".encode())
    return digest.hexdigest()


def default_out() -> Path:
    """Where runs go: $WORKBENCH_OUT, else `data/runs` in the checkout when it can be written, else the user's cache."""
    if given := os.environ.get(OUT_VARIABLE):
        return Path(given).absolute()
    checkout = CHECKOUT / "data" / "runs"
    nearest = next(folder for folder in (checkout, *checkout.parents) if folder.exists())
    in_checkout = (CHECKOUT / "pyproject.toml").is_file() and nearest.is_relative_to(CHECKOUT)
    if in_checkout and nearest.is_dir() and os.access(nearest, os.W_OK):
        return checkout
    return cache_folder() / "runs"


def cache_folder() -> Path:
    """The user's cache of the workbench: $XDG_CACHE_HOME, else the platform's place, else a private temporary one."""
    if root := os.environ.get("XDG_CACHE_HOME"):
        candidates = [Path(root)]
    elif sys.platform == "darwin":
        candidates = [Path("~/Library/Caches").expanduser()]
    elif sys.platform == "win32":
        candidates = [Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser()]
    else:
        candidates = [Path("~/.cache").expanduser()]
    for root_folder in candidates:
        nearest = next((folder for folder in (root_folder, *root_folder.parents) if folder.exists()), None)
        if nearest is not None and nearest.is_dir() and os.access(nearest, os.W_OK):
            return root_folder / "workbench"
    # A service user may have no home at all.
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"workbench-{user}"
