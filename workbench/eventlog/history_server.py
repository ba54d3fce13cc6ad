"""Event logs of Spark's history server, by its REST API: `history:http://HOST:18080[/APPLICATION][?since=…&name=…]`.

Logs are fetched as the zips that the server makes of them, into the user's cache, where those of ended applications
stay. Source of the API: Spark's documentation, Monitoring, REST API.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import http.client
import json
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from workbench.core.errors import InputError
from workbench.core.files import cache_folder
from workbench.core.redaction import has_user_info

T = TypeVar("T")
PREFIX = "history:"
OPTIONS = ("since", "until", "name", "user", "limit")
MAX_UNASKED, MAX_LIMIT = 200, 10_000
"""Logs that are fetched without a limit that was asked for, and with one."""
MAX_LIST_BYTES = 64 << 20
TIMEOUT_S = 60.0
# Waits between attempts while a server starts again.
RETRY_AFTER_S = (1.0, 2.0, 4.0, 8.0)
_FAULTS_OF_THIS_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
_APPLICATION = re.compile(r"(?:application_\d+_\d+|app-\d+-\d+|local-\d+|spark-[0-9a-f]{8,40}|spark-application-\d+)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?)?")


class Attempt(msgspec.Struct, rename="camel"):
    """A run of an application; times as the server writes them."""

    start_time: str = ""
    last_updated_epoch: int = 0
    completed: bool = True
    spark_user: str = ""
    attempt_id: str | None = None


class Application(msgspec.Struct):
    """An application with its attempts, the newest first."""

    id: str
    name: str = ""
    attempts: list[Attempt] = []


@dataclass(frozen=True)
class HistoryQuery:
    """Which applications of a server.

    `application`: An id, or empty for all that meet the rest; `attempt`: one of its attempts, or empty.
    `since`, `until`: Begins of applications, as dates or times (UTC). `name`: A pattern with * and ?. `limit`: The
    newest so many; 0 for all, which may be 200.
    """

    server: str
    application: str = ""
    attempt: str = ""
    since: str = ""
    until: str = ""
    name: str = ""
    user: str = ""
    limit: int = 0

    @classmethod
    def read(cls, text: str) -> HistoryQuery:
        """Read `history:URL`.

        >>> HistoryQuery.read("history:http://host:18080?since=2026-11-29&name=nightly*").since
        '2026-11-29'
        >>> HistoryQuery.read("history:https://proxy/spark/application_17_0001").server
        'https://proxy/spark'
        """
        parts = urllib.parse.urlsplit(text.removeprefix(PREFIX))
        allowed = f"{PREFIX}http://HOST:PORT[/APPLICATION][?{'&'.join(f'{name}=…' for name in OPTIONS)}]"
        if parts.scheme not in ("http", "https") or not parts.hostname or has_user_info(text):
            raise InputError("not a history server", where=PREFIX, found=parts.scheme or "no URL", allowed=allowed)
        folders = parts.path.rstrip("/").split("/")
        attempt = folders.pop() if folders[-1].isdigit() and _APPLICATION.fullmatch("".join(folders[-2:-1])) else ""
        application = folders.pop() if _APPLICATION.fullmatch(folders[-1]) else ""
        given = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted({*given} - {*OPTIONS}):
            raise InputError("not an option of a history server", where=PREFIX, found=unknown, allowed=OPTIONS)
        for name in ("since", "until"):
            if given.get(name) and not _is_time(given[name]):
                allowed = "2026-11-30 or 2026-11-30T18:00"
                raise InputError("not a date", where=f"{PREFIX} {name}", found=given[name][:40], allowed=allowed)
        limit = given.pop("limit", "0")
        if not limit.isdigit() or not 0 <= int(limit) <= MAX_LIMIT:
            raise InputError("not a limit", where=f"{PREFIX} limit", found=limit[:40], allowed=f"1 to {MAX_LIMIT:,}")
        server = f"{parts.scheme}://{parts.netloc}{'/'.join(folders)}"
        return cls(server, application, attempt, limit=int(limit), **given)

    def accepts(self, application: Application) -> bool:
        """Whether an application is meant; the server itself compares the begins."""
        users = {attempt.spark_user for attempt in application.attempts}
        return (not self.name or fnmatch.fnmatchcase(application.name, self.name)) and (
            not self.user or self.user in users
        )


@dataclass(frozen=True)
class FetchedLog:
    """A zip in the cache; `path` names it as the reader does."""

    path: str
    file: Path
    is_running: bool


def fetch_history_logs(text: str) -> list[FetchedLog]:
    """Fetch the logs that `history:URL` means, the newest applications first; those in the cache are not sent again.

    Raises
    ------
    InputError
        The server does not answer, refuses, or has no such application.
    """
    query = HistoryQuery.read(text)
    logs = [
        _fetch_log(query.server, application.id, attempt)
        for application in _list_applications(query)
        for attempt in application.attempts
        if query.attempt in ("", attempt.attempt_id)
    ]
    if not logs:
        raise InputError("no such application on the history server", where=text, do="leave out name, user or since")
    return logs


def _list_applications(query: HistoryQuery) -> list[Application]:
    url = f"{query.server}/api/v1/applications"
    try:
        if query.application:
            return [msgspec.convert(_read_json(f"{url}/{query.application}"), Application)]
        times = {"minDate": query.since, "maxDate": query.until}
        asked = urllib.parse.urlencode({name: _write_time(value) for name, value in times.items() if value})
        found = msgspec.convert(_read_json(f"{url}?{asked}" if asked else url), list[Application])
    except msgspec.ValidationError as error:
        raise InputError("not a history server's answer", where=url, found=str(error)[:160]) from None
    chosen = [application for application in found if query.accepts(application)]
    if not query.limit and len(chosen) > MAX_UNASKED:
        raise InputError(
            "many applications on the history server: say which",
            where=query.server,
            found=len(chosen),
            do=f"add ?since=DATE or name=PATTERN, or limit={len(chosen)}",
        )
    return chosen[: query.limit or None]


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _DATE.fullmatch(text) is not None


def _write_time(text: str) -> str:
    """A date or a time as the API takes it: a day, or a moment of GMT with milliseconds."""
    if "T" not in text:
        return text
    return datetime.fromisoformat(text).replace(tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.000GMT")


def _fetch_log(server: str, application: str, attempt: Attempt) -> FetchedLog:
    own = f"{application}/{attempt.attempt_id}" if attempt.attempt_id else application
    folder = cache_folder() / "history" / hashlib.sha256(server.encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9_-]", "_", own)
    file = folder / f"{name}-{attempt.last_updated_epoch}.zip"
    if not file.is_file() or not attempt.completed:
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")

        def keep(answer: Any) -> None:
            with part.open("wb") as output:
                shutil.copyfileobj(answer, output, 1 << 20)
            # The end of a zip is its list: one without it was broken off.
            if not zipfile.is_zipfile(part):
                raise http.client.IncompleteRead(b"")

        _ask(f"{server}/api/v1/applications/{own}/logs", keep)
        for older in folder.glob(f"{name}-*.zip"):
            older.unlink()
        part.replace(file)
    return FetchedLog(f"{PREFIX}{server}/{own}", file, not attempt.completed)


def _read_json(url: str) -> Any:
    text = _ask(url, lambda answer: answer.read(MAX_LIST_BYTES + 1))
    if len(text) > MAX_LIST_BYTES:
        raise InputError("the history server lists too much", where=url, do="add ?since=DATE")
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError("not a history server's answer", where=url, found=str(error)[:120]) from None


def _ask(url: str, read: Callable[[Any], T]) -> T:
    """What is read of the answer to a request; a server that is away, or breaks off, is asked again for a while."""
    for wait_s in (*RETRY_AFTER_S, None):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http(s) alone
                return read(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500 or wait_s is None:
                do = "check the application's id and the address" if error.code == 404 else None
                raise InputError("the history server refuses", where=url, found=f"HTTP {error.code}", do=do) from None
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in _FAULTS_OF_THIS_MACHINE:
                raise
            if wait_s is None:
                reason = getattr(error, "reason", error)
                raise InputError("the history server does not answer", where=url, found=str(reason)[:160]) from None
        time.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")
