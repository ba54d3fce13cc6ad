"""The runs that are there, below a folder or an fsspec URL: found, told in order, and read within bounds.

Nothing here writes. A run of a URL is what was copied there; whether a process writes it now cannot be told from here.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from workbench import files, redaction, runs
from workbench.errors import ConfigError, InputError, WorkbenchError
from workbench.stores import open_store

if TYPE_CHECKING:
    import polars as pl

MOST_TABLE_BYTES = 256 << 20
MOST_ROWS = 200_000
MOST_RUNS = 20_000
MOST_DEPTH = 6
_TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
Unreadable = Callable[[InputError], None]


@dataclass(frozen=True)
class Kept:
    """A run that is there.

    Attributes
    ----------
    place
        Its folder or URL, without user and password.
    record
        Its run.json, in the current format.
    state
        Its status; "died" when nobody runs it any more, "unfinished" when that cannot be told.
    """

    place: str
    record: dict[str, Any]
    state: str
    _store: Any = field(repr=False, compare=False)
    _root: str = field(repr=False, compare=False)

    @property
    def run_id(self) -> str:
        """Its name."""
        return str(self.record["run_id"])

    @property
    def area(self) -> str:
        """The notebook's stem without its number."""
        return str(self.record["area"])

    @property
    def began(self) -> datetime:
        """When it began; see `runs.began`."""
        return runs.began(self.record)

    def document(self) -> dict[str, Any]:
        """Its record for `--json`: with its state as status, and where it lies."""
        return self.record | {"status": self.state, "folder": self.place}

    def table_names(self) -> list[str]:
        """The tables that its record names, as far as these can be names of tables."""
        names = (entry.get("name") for entry in self.record["tables"] if isinstance(entry, dict))
        return [name for name in names if isinstance(name, str) and _TABLE_NAME.fullmatch(name)]

    def entry(self, table: str) -> dict[str, Any]:
        """What its record says of a table; empty when that is nothing."""
        entries = (entry for entry in self.record["tables"] if isinstance(entry, dict) and entry.get("name") == table)
        return next(entries, {})

    def table(self, name: str) -> pl.DataFrame:
        """Read one of its tables.

        Raises
        ------
        InputError
            It has no such table, or the file is not there, too large, or no Parquet file.
        """
        if name not in self.table_names():
            raise InputError("no such table in the run", where=self.place, found=name, allowed=self.table_names())
        path = f"{self._root}/tables/{name}.parquet"
        try:
            content = self._store.read(path, MOST_TABLE_BYTES)
        except OSError as error:
            raise InputError("cannot read the table", where=path, found=_told(error)) from error
        return _parquet(content, path)


def _parquet(content: bytes, where: str) -> pl.DataFrame:
    import polars as pl

    try:
        frame = pl.read_parquet(io.BytesIO(content), n_rows=MOST_ROWS + 1)
    # A broken file makes polars panic, which is no Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, MemoryError) as error:
        raise InputError("not a readable Parquet file", where=where, found=str(error)[:200]) from error
    if frame.height > MOST_ROWS:
        raise InputError("a table too long to be read here", where=where, allowed=f"at most {MOST_ROWS:,} rows")
    return frame


class _Local:
    """The machine's own files: no need of fsspec, and links to folders are not followed."""

    def read(self, path: str, most_bytes: int) -> bytes:
        return files.read_bounded(path, most_bytes)

    def shown(self, path: str) -> str:
        return path

    def state(self, root: str, record: dict[str, Any]) -> str:
        return runs.Run(Path(root), record).state

    def ls(self, path: str) -> Iterator[tuple[str, bool]]:
        import os

        with os.scandir(path) as entries:
            for entry in entries:
                yield entry.path, entry.is_dir(follow_symlinks=False)


@contextlib.contextmanager
def _failures_as_os_errors() -> Iterator[None]:
    """Drivers raise what their libraries do: a server that answers 403 is a ClientResponseError of aiohttp.

    Raises
    ------
    OSError
        With the text of whatever was raised; an OSError is left as it is.
    """
    try:
        yield
    except (WorkbenchError, OSError):
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error


class _Remote:
    """A store of fsspec."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def read(self, path: str, most_bytes: int) -> bytes:
        with _failures_as_os_errors(), self.store.open(path, "rb") as file:
            found = file.read(most_bytes + 1)
        if len(found) > most_bytes:
            raise InputError("a file too large to be one", where=self.shown(path), allowed=f"{most_bytes:,} bytes")
        return bytes(found)

    def shown(self, path: str) -> str:
        return redaction.without_user_info(str(self.store.unstrip_protocol(path)))

    def state(self, root: str, record: dict[str, Any]) -> str:
        del root
        return "unfinished" if record["status"] == "running" else str(record["status"])

    def ls(self, path: str) -> Iterator[tuple[str, bool]]:
        with _failures_as_os_errors():
            entries = self.store.ls(path, detail=True)
        for entry in entries:
            yield str(entry["name"]).rstrip("/"), entry.get("type") == "directory"


def _opened(place: str) -> tuple[_Local | _Remote, str]:
    if "://" not in place:
        return _Local(), str(Path(place).expanduser().absolute())
    store, root = open_store(place)
    return _Remote(store), root.rstrip("/")


def opened(place: str | Path) -> Kept:
    """The run in a folder or at a URL.

    Raises
    ------
    InputError
        There is none, or it cannot be read, or URLs of this kind cannot be opened here.
    """
    store, root = _opened(str(place))
    return _kept(store, root)


def of(run: runs.Run) -> Kept:
    """A run of this process, by what its record says now, written or not."""
    return Kept(str(run.folder), run.record, run.status, _Local(), str(run.folder))


def _kept(store: _Local | _Remote, root: str) -> Kept:
    path = f"{root}/{runs.RECORD}"
    try:
        content = store.read(path, runs.MOST_RECORD_BYTES)
    except FileNotFoundError as error:
        raise InputError("not a run folder", where=store.shown(root), found=f"no {runs.RECORD}") from error
    except OSError as error:
        raise InputError("unreadable run record", where=store.shown(path), found=_told(error)) from error
    record = runs.parse(content, store.shown(path))
    state = store.state(root, record)
    if record["status"] == "running" and state not in ("running", "died", "unfinished"):
        # It ended while we looked: what it found stands in its record now.
        record = runs.parse(store.read(path, runs.MOST_RECORD_BYTES), store.shown(path))
    return Kept(store.shown(root), record, state, store, root)


def listed(place: str | Path, *, unreadable: Unreadable | None = None) -> list[Kept]:
    """All runs below a folder or URL, newest first; none where nothing is there.

    Looked for six folders deep; a run's own folder is not entered, and links are not followed.

    Parameters
    ----------
    place
        A folder, or a URL such as s3://bucket/runs.
    unreadable
        Called with the error of each run that cannot be read; without it those are left out.

    Raises
    ------
    InputError
        URLs of this kind cannot be opened here.
    ConfigError
        The place cannot be reached.
    """
    store, root = _opened(str(place))
    found: list[Kept] = []
    for folder in _run_folders(store, root):
        try:
            found.append(_kept(store, folder))
        except InputError as error:
            if unreadable:
                unreadable(error)
    return sorted(found, key=lambda run: (run.began, run.run_id), reverse=True)


def _run_folders(store: _Local | _Remote, root: str) -> Iterator[str]:
    waiting, seen = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = sorted(store.ls(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if folder == root:
                raise ConfigError("cannot list the runs", where=store.shown(root), found=_told(error)) from error
            continue
        if any(PurePosixPath(path).name == runs.RECORD and not is_folder for path, is_folder in entries):
            yield folder
            if (seen := seen + 1) >= MOST_RUNS:
                return
        elif depth < MOST_DEPTH:
            waiting += [(path, depth + 1) for path, is_folder in entries if is_folder and path != folder]


def one(name: str, place: str | Path) -> Kept:
    """The run that is meant: a run folder, its URL, a run id below `place`, or the start of one.

    Raises
    ------
    ConfigError
        No run, or more than one, is meant.
    """
    if "://" in name or (Path(name) / runs.RECORD).is_file():
        return opened(name)
    matches = [run for run in listed(place) if run.run_id.startswith(name)] if name else []
    if len(matches) != 1:
        found = [run.run_id for run in matches[:5]] or f"none that begins with {name[:60]!r}"
        where = redaction.without_user_info(str(place))
        raise ConfigError("not one run", where=where, found=found, allowed="a run id", do="workbench runs list")
    return matches[0]


def chosen(
    found: Iterable[Kept],
    *,
    area: str | None = None,
    status: str | None = None,
    verdict: str | None = None,
    since: datetime | None = None,
) -> list[Kept]:
    """The runs of an area, with a status (or "died"), a verdict, or begun at a time or later; in their order."""
    return [
        run
        for run in found
        if (area is None or run.area == area)
        and (status is None or run.state == status)
        and (verdict is None or run.record["verdict"] == verdict)
        and (since is None or run.began >= since)
    ]


def moment(text: str, *, option: str, now: datetime | None = None) -> datetime:
    """A day, a time, or an age before now (30d, 12h, 45min), in UTC.

    Raises
    ------
    ConfigError
        It is none of these.

    Examples
    --------
    >>> moment("2026-11-01", option="--since").isoformat()
    '2026-11-01T00:00:00+00:00'
    >>> moment("36h", option="--since", now=datetime(2026, 11, 3, 12, tzinfo=UTC)).isoformat()
    '2026-11-02T00:00:00+00:00'
    """
    from datetime import timedelta

    now = now or datetime.now(UTC)
    try:
        if age := re.fullmatch(r"(\d{1,6})(d|h|min)", text.strip()):
            unit = {"d": "days", "h": "hours", "min": "minutes"}[age[2]]
            return now - timedelta(**{unit: int(age[1])})
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(
            "not a time",
            where=option,
            found=text[:60],
            allowed="2026-11-01, 2026-11-01T12:00, or an age: 30d, 12h, 45min",
        ) from None


def _told(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return redaction.without_user_info(text)[:200]
