"""Find, list, read and copy runs below a folder or an fsspec URL, within size limits.

A run at a URL is a copy: whether a process still writes it is unknown.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.files import default_out, is_store_failure
from workbench.core.frames import convert_frame, load_into_duckdb
from workbench.core.locks import LOCK_FILE
from workbench.core.samples import find_sample
from workbench.runs import run_folder
from workbench.runs.run_folder import parse_record, read_start_time
from workbench.runs.run_stores import (
    MANY_AT_ONCE,
    Content,
    LocalStore,
    RemoteStore,
    Store,
    format_error,
    list_files,
    open_place,
    try_to_read,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

MAX_TABLE_BYTES = 256 << 20
MAX_ROWS = 200_000
MAX_RUNS = 20_000
MAX_DEPTH = 6
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
OnUnreadable = Callable[[InputError], None]
REPORT_FILE = "report.html"
STATES = ("running", "succeeded", "failed", "cancelled", "died", "unfinished")
VERDICTS = ("valid", "invalid")
DELETED_RECORD = "run.json.deleted"
"""The record of a run that is being deleted: see `workbench.runs.prune`."""
_LEFT_OUT = (run_folder.RECORD_FILE, DELETED_RECORD, run_folder.PROGRESS_FILE, LOCK_FILE)


class RunTables(Mapping[str, "pl.DataFrame"]):
    """The tables of one run by name; a table is read when it is first asked for.

    Missing values are null, never 0. Times are in the unit that ends the column's name (`wall_s`). The tables hold what
    the run measured: they show nothing about another machine, and rows of one run are no repeats.

    Examples
    --------
    >>> from workbench import runs
    >>> result = runs.open("data/samples/capacity/sizing")
    >>> result.tables["estimates"].height > 0
    True
    >>> result.tables.sql("SELECT count(*) AS n FROM estimates")["n"][0] == result.tables["estimates"].height
    True
    >>> type(result.tables.pandas("estimates")).__name__
    'DataFrame'
    """

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._read: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        """The table as a polars frame.

        Raises
        ------
        InputError
            The run has no such table, or its file is missing or unreadable.
        """
        if name not in self._read:
            self._read[name] = self._run.read_table(name, all_rows=True)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._run.list_table_names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.list_table_names())

    def __len__(self) -> int:
        return len(self._run.list_table_names())

    def __repr__(self) -> str:
        return f"Tables of {self._run.run_id}: {', '.join(self)}"

    def describe(self) -> pl.DataFrame:
        """One row per table: `table`, `rows`, `columns` (their names), `meaning`."""
        import polars as pl

        entries = [(name, self._run.table_entry(name)) for name in self]
        rows = [
            (name, entry.get("rows"), ", ".join(self[name].columns), entry.get("meaning")) for name, entry in entries
        ]
        schema = {"table": pl.String, "rows": pl.Int64, "columns": pl.String, "meaning": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def pandas(self, name: str) -> pd.DataFrame:
        """The table as a pandas frame; an int column with nulls is float there, with NaN for null."""
        return self[name].to_pandas()

    def sql(self, query: str, **frames: Any) -> pl.DataFrame:
        """The result of a query in DuckDB's SQL, in which the tables have their names.

        `frames`: Further frames (polars, pandas, Arrow) by the name that they have in the query. A file of your own is
        read by its path: `SELECT * FROM 'mine.csv'`.

        Raises
        ------
        InputError
            DuckDB refuses the query; its message names the place.
        """
        import duckdb
        import polars as pl

        given = {name: convert_frame(frame, "sql") for name, frame in frames.items()}
        with load_into_duckdb({**self, **given}) as connection:
            try:
                relation = connection.sql(query)
                # A statement such as COPY has no rows.
                answer: pl.DataFrame = pl.DataFrame() if relation is None else relation.pl()
            except duckdb.Error as error:
                allowed = f"the tables {', '.join([*self, *given])}, and files by their path"
                raise InputError("the SQL failed", where="sql", found=str(error)[:500], allowed=allowed) from error
        return answer


@dataclass(frozen=True)
class StoredRun:
    """A run in a folder or at a URL.

    `state`: Its status; "died" when its process is gone, "unfinished" when that is unknown (at a URL).
    """

    place: str
    record: dict[str, Any]
    state: str
    store: Store = field(repr=False, compare=False)
    root: str = field(repr=False, compare=False)

    @property
    def run_id(self) -> str:
        """Run id."""
        return str(self.record["run_id"])

    @property
    def area(self) -> str:
        """Stem of the notebook without its number."""
        return str(self.record["area"])

    @property
    def began(self) -> datetime:
        """Start time; see `read_start_time`."""
        return read_start_time(self.record)

    @property
    def verdict(self) -> str | None:
        """valid, invalid, or null; a run that did not succeed is never valid, whatever it concluded before."""
        verdict = self.record["verdict"]
        return None if verdict is None or (verdict == "valid" and self.state != "succeeded") else str(verdict)

    @property
    def objection(self) -> str:
        """Why nothing should rest on the run; empty for a valid one. See `find_objection`."""
        return run_folder.find_objection(self.record | {"status": self.state})

    @property
    def report(self) -> str | None:
        """Path or URL of the report; null before the run has ended, or without one."""
        try:
            (has_report,) = self.store.has_each([f"{self.root}/{REPORT_FILE}"])
        except OSError:
            return None
        return f"{self.place}/{REPORT_FILE}" if has_report else None

    def build_document(self) -> dict[str, Any]:
        """The record for `--json`, with the state as `status` and the place as `folder`."""
        return self.record | {"status": self.state, "verdict": self.verdict, "folder": self.place}

    def list_table_names(self) -> list[str]:
        """Names of the tables in the record that are valid names."""
        names = (entry.get("name") for entry in self.record["tables"] if isinstance(entry, dict))
        return [name for name in names if isinstance(name, str) and SAFE_NAME.fullmatch(name)]

    def table_entry(self, table: str) -> dict[str, Any]:
        """The record's entry of a table; empty without one."""
        entries = (entry for entry in self.record["tables"] if isinstance(entry, dict) and entry.get("name") == table)
        return next(entries, {})

    def read_file(self, name: str, max_bytes: int) -> bytes:
        """The bytes of one of its files, such as report.ipynb."""
        try:
            return self.store.read_bytes(f"{self.root}/{name}", max_bytes)
        except OSError as error:
            raise InputError("cannot read the file", where=f"{self.place}/{name}", found=format_error(error)) from error

    @property
    def tables(self) -> RunTables:
        """Its tables as frames of polars or pandas, and SQL over them."""
        return RunTables(self)

    def read_table(self, name: str, *, all_rows: bool = False) -> pl.DataFrame:
        """Read one of its tables, of at most `MAX_ROWS` rows unless all are wanted."""
        if name not in self.list_table_names():
            raise InputError("no such table in the run", where=self.place, found=name, allowed=self.list_table_names())
        path = f"{self.root}/tables/{name}.parquet"
        try:
            content = self.store.read_bytes(path, MAX_TABLE_BYTES)
        except OSError as error:
            raise InputError("cannot read the table", where=path, found=format_error(error)) from error
        return _parse_parquet(content, path, None if all_rows else MAX_ROWS)


def _parse_parquet(content: bytes, where: str, max_rows: int | None) -> pl.DataFrame:
    """Parse a Parquet file's bytes, at most `max_rows` rows; null for all."""
    import polars as pl

    try:
        frame = pl.read_parquet(io.BytesIO(content), n_rows=None if max_rows is None else max_rows + 1)
    # Polars panics on some damaged files; a panic is not an `Exception`.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, MemoryError) as error:
        raise InputError("not a readable Parquet file", where=where, found=str(error)[:200]) from error
    if max_rows is not None and frame.height > max_rows:
        raise InputError("table has too many rows", where=where, allowed=f"at most {max_rows:,} rows")
    return frame


def open_run(place: str | Path) -> StoredRun:
    """The run in a folder or at a URL."""
    store, root = open_place(place)
    return _read_stored_run(store, root)


def open_result(run: str | Path | run_folder.Run, out: str | Path | None = None) -> StoredRun:
    """A run with its record and its tables (`.tables`): polars frames, `.pandas()`, `.sql()`.

    `run`: A run folder or its URL, a run id or the start of one, an area (its newest run), a sample (`sample:NAME`), or
    the run of this notebook.
    `out`: Where ids and areas are looked for; by default where runs are written.

    Raises
    ------
    ConfigError
        No run, or more than one, has that name.

    >>> open_result("data/samples/capacity/sizing").area
    'sizing'
    """
    if isinstance(run, run_folder.Run):
        return build_stored_run(run)
    return resolve_run(find_sample(str(run)), default_out() if out is None else out)


def build_stored_run(run: run_folder.Run) -> StoredRun:
    """A run of this process, with its record in memory."""
    return StoredRun(str(run.folder), run.record, run.status, LocalStore(), str(run.folder))


def _read_stored_run(store: Store, root: str) -> StoredRun:
    content = try_to_read(store, f"{root}/{run_folder.RECORD_FILE}", run_folder.MAX_RECORD_BYTES)
    if isinstance(content, FileNotFoundError):
        found = f"no {run_folder.RECORD_FILE}"
        raise InputError("not a run folder", where=store.display_path(root), found=found) from content
    return _build_stored_run(store, root, content)


def _build_stored_run(
    store: Store, root: str, content: Content, record_name: str = run_folder.RECORD_FILE
) -> StoredRun:
    """The run of a record that was read; one that has ended meanwhile is read again."""
    where = store.display_path(f"{root}/{record_name}")
    if isinstance(content, OSError):
        raise InputError("unreadable run record", where=where, found=format_error(content)) from content
    if isinstance(content, InputError):
        raise content
    record = parse_record(content, where)
    state = store.read_state(root, record)
    if record["status"] == "running" and state not in ("running", "died", "unfinished"):
        return _read_stored_run(store, root)
    return StoredRun(store.display_path(root), record, state, store, root)


def list_runs(
    place: str | Path,
    *,
    unreadable: OnUnreadable | None = None,
    half_deleted: Callable[[StoredRun], None] | None = None,
) -> list[StoredRun]:
    """List all runs below a folder or URL, newest first; the list may be empty.

    Searches six levels deep; does not enter run folders or follow links.

    `unreadable`: Called with the error of each unreadable run, and once where more than `MAX_RUNS` are there, of which
    the rest is left out before sorting; without it both are silent.
    `half_deleted`: Called with each run whose record was deleted and whose files were not; see `DELETED_RECORD`.
    """
    store, root = open_place(place)
    runs: list[StoredRun] = []
    for folder, name, content in _iterate_records(store, root, unreadable or (lambda _: None)):
        found = runs.append if name == run_folder.RECORD_FILE else half_deleted
        if found is None:
            continue
        try:
            found(_build_stored_run(store, folder, content, name))
        except InputError as error:
            if unreadable:
                unreadable(error)
    return sorted(runs, key=lambda run: (run.began, run.run_id), reverse=True)


def _iterate_records(store: Store, root: str, unreadable: OnUnreadable) -> Iterator[tuple[str, str, Content]]:
    """Each run's folder, its record's name and content; the records of many folders are asked for at once."""
    waiting, n_seen = [(root, 0)], 0
    while waiting:
        folders, waiting = waiting[: -MANY_AT_ONCE - 1 : -1], waiting[:-MANY_AT_ONCE]
        records = [f"{folder}/{run_folder.RECORD_FILE}" for folder, _ in folders]
        contents = store.read_each(records, run_folder.MAX_RECORD_BYTES)
        for (folder, depth), content in zip(folders, contents, strict=True):
            if isinstance(content, (FileNotFoundError, NotADirectoryError)):
                entries = sorted(_list_folder(store, folder, root, unreadable))
                deleted = f"{folder}/{DELETED_RECORD}"
                if any(path == deleted for path, _, _ in entries):
                    yield folder, DELETED_RECORD, try_to_read(store, deleted, run_folder.MAX_RECORD_BYTES)
                elif depth < MAX_DEPTH:
                    waiting += [(path, depth + 1) for path, is_folder, _ in entries if is_folder and path != folder]
                continue
            if folder == root and isinstance(content, OSError):
                where = store.display_path(root)
                raise ConfigError("cannot list the runs", where=where, found=format_error(content)) from content
            if n_seen == MAX_RUNS:
                too_many = InputError(
                    "too many runs: the rest is not listed",
                    where=store.display_path(root),
                    allowed=f"at most {MAX_RUNS:,} runs",
                    do="list a folder below it, or delete old runs: workbench runs prune",
                )
                unreadable(too_many)
                return
            n_seen += 1
            yield folder, run_folder.RECORD_FILE, content


def _list_folder(store: Store, folder: str, root: str, unreadable: OnUnreadable) -> list[tuple[str, bool, int]]:
    """The entries of a folder that holds no run; none where it is gone or cannot be listed, which is told."""
    try:
        return store.list_entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        if folder == root and isinstance(store, RemoteStore) and not store.has_bucket(root):
            do = "check its name, and the credentials and endpoint in the environment"
            raise ConfigError("no such bucket", where=store.display_path(root), do=do) from None
    except OSError as error:
        where, reason = store.display_path(folder), format_error(error)
        if folder == root:
            raise ConfigError("cannot list the runs", where=where, found=reason) from error
        failure = InputError("cannot list a folder of runs", where=where, found=reason)
        failure.__cause__ = error
        unreadable(failure)
    return []


def resolve_run(name: str, place: str | Path) -> StoredRun:
    """Find a run by folder, URL, run id below `place` or the start of one; an area means its newest run."""
    if "://" in name or (Path(name) / run_folder.RECORD_FILE).is_file():
        return open_run(name)
    return find_run_below(name, place)


def find_run_below(name: str, place: str | Path) -> StoredRun:
    """Find a run below `place` by its id, the start of one, or an area for its newest run; a path is no name."""
    unread: list[InputError] = []
    present = list_runs(place, unreadable=unread.append) if name else []
    matches = [run for run in present if run.run_id.startswith(name)] or [run for run in present if run.area == name][
        :1
    ]
    # A store that did not answer may have the run that is meant, or a newer one.
    if (missed := list(filter(is_store_failure, unread))) and name not in [run.run_id for run in matches]:
        raise missed[0]
    if len(matches) != 1:
        told = "several runs match" if matches else "no run matches"
        finding = [run.run_id for run in matches[:5]] or name[:60]
        where = redaction.strip_user_info(str(place))
        raise ConfigError(
            told, where=where, found=finding, allowed="a run id, the start of one, or an area", do="workbench runs list"
        )
    return matches[0]


def filter_runs(
    runs: Iterable[StoredRun],
    *,
    area: str | None = None,
    status: str | None = None,
    verdict: str | None = None,
    since: datetime | None = None,
) -> list[StoredRun]:
    """Runs of an area, state and verdict, started at `since` or later; the order is kept."""
    return [
        run
        for run in runs
        if (area is None or run.area == area)
        and (status is None or run.state == status)
        and (verdict is None or run.verdict == verdict)
        and (since is None or run.began >= since)
    ]


def parse_moment(text: str, *, option: str, now: datetime | None = None) -> datetime:
    """Parse a day, a time, or an age before now (30d, 12h, 45min), in UTC.

    >>> parse_moment("2026-11-01", option="--since").isoformat()
    '2026-11-01T00:00:00+00:00'
    >>> parse_moment("36h", option="--since", now=datetime(2026, 11, 3, 12, tzinfo=UTC)).isoformat()
    '2026-11-02T00:00:00+00:00'
    """
    from datetime import timedelta

    now = now or datetime.now(UTC)
    try:
        if age := re.fullmatch(r"(\d{1,6})(d|h|min)", text.strip()):
            unit = {"d": "days", "h": "hours", "min": "minutes"}[age[2]]
            return now - timedelta(**{unit: int(age[1])})
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(
            "not a time",
            where=option,
            found=text[:60],
            allowed="2026-11-01, 2026-11-01T12:00, or an age: 30d, 12h, 45min",
        ) from None


def copy_run(run: StoredRun, place: str | Path) -> str:
    """Copy a run that has ended to `<place>/<area>/<run id>`; returns that folder or URL, without user and password.

    Each file is compared by its size after it was written, and run.json comes last: whatever stops the copy, nothing
    there reads as a run until it is whole. The same copy again completes it, and one that is whole is left alone.
    """
    if run.record["status"] == "running":
        raise ConfigError("only a run that has ended can be copied", where=run.place, found=run.state)
    if bad := [name for name in (run.area, run.run_id) if not SAFE_NAME.fullmatch(name)]:
        raise ConfigError("not a name of a folder", where=run.place, found=bad[0][:100], do="see its run.json")
    store, root = open_place(place)
    target = f"{root}/{run.area}/{run.run_id}"
    record = _read_copied_file(run, run_folder.RECORD_FILE)
    if _is_copied(store, target, record):
        return store.display_path(target)
    try:
        members = list_files(run.store, run.root)
    except OSError as error:
        raise InputError("cannot list the run", where=run.place, found=format_error(error)) from error
    # A deletion takes the record first: while it is there, the listing is whole.
    if _read_copied_file(run, run_folder.RECORD_FILE) != record:
        raise InputError("the run was changed while it was copied", where=run.place)
    for name, _ in members:
        if name not in _LEFT_OUT and not name.endswith(".part"):
            try:
                with run.store.local_copy(f"{run.root}/{name}") as path:
                    try:
                        store.put_file(path, f"{target}/{name}")
                    except OSError as error:
                        raise _build_copy_error(store, f"{target}/{name}", error) from error
            except OSError as error:
                raise InputError(
                    "cannot read the run", where=f"{run.place}/{name}", found=format_error(error)
                ) from error
    try:
        store.write_bytes(f"{target}/{run_folder.RECORD_FILE}", record)
    except OSError as error:
        raise _build_copy_error(store, target, error) from error
    return store.display_path(target)


def _read_copied_file(run: StoredRun, name: str) -> bytes:
    try:
        return run.store.read_bytes(f"{run.root}/{name}", run_folder.MAX_RECORD_BYTES)
    except OSError as error:
        raise InputError("cannot read the run", where=f"{run.place}/{name}", found=format_error(error)) from error


def _is_copied(store: Store, target: str, record: bytes) -> bool:
    """Whether this very run is there and complete; raises if another run is there, or half of a deleted one."""
    try:
        names = {PurePosixPath(path).name for path, _, _ in store.list_entries(target)}
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _build_copy_error(store, target, error) from error
    if not names & {run_folder.RECORD_FILE, DELETED_RECORD}:
        return False
    try:
        stored_record = store.read_bytes(f"{target}/{run_folder.RECORD_FILE}", run_folder.MAX_RECORD_BYTES)
    except FileNotFoundError as error:
        # Also one that goes on now, and would take files of a new copy along.
        do = "delete the rest first: workbench runs prune --keep 1000000 --yes --out of that place"
        raise ConfigError("this run is half deleted there", where=store.display_path(target), do=do) from error
    except OSError as error:
        raise _build_copy_error(store, target, error) from error
    if stored_record != record:
        raise ConfigError("another run is there", where=store.display_path(target), do="choose another place")
    return True


def _build_copy_error(store: Store, path: str, error: OSError) -> RunFailedError:
    where = redaction.strip_user_info(store.display_path(path))
    return RunFailedError(
        "cannot write the copy of the run",
        where=where,
        found=format_error(error),
        do="the run itself is unchanged; run the same command again to complete the copy",
    )
