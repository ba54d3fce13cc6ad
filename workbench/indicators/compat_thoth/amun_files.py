"""Read Amun's files on disk: run documents of all layouts, and the scripts that specifications name."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.files import read_up_to
from workbench.indicators.store.archive import INSPECTIONS, MAX_RESULT_BYTES, OUTSIDE, SESSION_FILE, is_inside

MAX_FILES = 100_000
MAX_DEPTH = 50
MAX_TOTAL_BYTES = 1 << 30
SUFFIXES = (".json", ".stdout")
_Any = TypeVar("_Any")
_RESULT_KEYS = ("stdout", "usage", "exit_code", "hwinfo", "script_sha256")
MAX_SCRIPT_BYTES = 1 << 20
MAX_EXTRA_FILES = 200
FETCH_TIMEOUT_S = 30


@dataclass(frozen=True)
class RawRun:
    """A run's result as it was found, with the specification it belongs to (empty when there is none)."""

    path: Path
    inspection: str
    result: Mapping[str, Any]
    specification: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class ReadProblems:
    """Files that could not be read, each with the reason; and how much was read so far."""

    found: list[tuple[Path, str]] = field(default_factory=list)
    bytes_read: int = 0

    def read_bytes(self, path: Path) -> bytes:
        """A file's bytes."""
        try:
            content = read_up_to(path, MAX_RESULT_BYTES)
        except OSError as error:
            raise InputError("cannot be read", found=error.strerror) from None
        self.bytes_read += len(content)
        if self.bytes_read > MAX_TOTAL_BYTES:
            allowed = f"at most {MAX_TOTAL_BYTES >> 20} MiB"
            raise ConfigError("too much for one import", where=path, allowed=allowed, do="import it in parts")
        return content

    def add_problem(self, path: Path, reason: object) -> None:
        """Note one."""
        self.found.append((path, " ".join(str(reason).split())[:500]))


def read_raw_runs(path: Path, problems: ReadProblems) -> Iterator[RawRun]:
    """Read all runs at a path: of one inspection, of a folder of inspections, or of single documents."""
    if path.is_file():
        yield from _read_single_document(path, problems)
        return
    if not path.is_dir():
        raise InputError("nothing there", where=path, allowed="a document, an inspection's folder, a folder of those")
    if (path / SESSION_FILE).is_file() or (path / INSPECTIONS).is_dir():
        raise InputError(
            "a session of this project already",
            where=path,
            do=f"bring it in as it is: workbench indicators sync {path}",
        )
    has_documents, root = False, path.resolve()
    for entry in _list_documents(path):
        has_documents = True
        if is_inside(entry, root):
            yield from (
                _read_inspection(entry, problems, root) if entry.is_dir() else _read_single_document(entry, problems)
            )
        else:
            problems.add_problem(entry, OUTSIDE)
    if not has_documents:
        raise InputError(
            "no documents of Amun there",
            where=path,
            allowed="ID/build/specification with ID/results/N/result, *.json or *.stdout",
        )


def _list_documents(path: Path) -> list[Path]:
    """The inspections' folders and single documents of a folder, in order."""
    if _is_inspection(path):
        return [path]
    entries = sorted(path.iterdir())
    if len(entries) > MAX_FILES:
        raise InputError("too many files", where=path, found=len(entries), allowed=f"at most {MAX_FILES:,}")
    return [
        entry
        for entry in entries
        if (entry.is_file() and entry.suffix in SUFFIXES) or (entry.is_dir() and _is_inspection(entry))
    ]


def _is_inspection(path: Path) -> bool:
    return (path / "build" / "specification").is_file() or (path / "results").is_dir()


def _read_inspection(folder: Path, problems: ReadProblems, root: Path) -> Iterator[RawRun]:
    path = folder / "build" / "specification"
    specification: Mapping[str, Any] = {}
    if not is_inside(path, root):
        problems.add_problem(path, OUTSIDE)
    elif path.is_file():
        try:
            specification = _read_object(path, problems)
        except InputError as error:
            problems.add_problem(path, error)
    else:
        problems.add_problem(path, "no specification: the stack is not known")
    numbered = []
    for count, result_path in enumerate((folder / "results").glob("*/result")):
        if count >= MAX_FILES:
            raise InputError("too many results", where=folder, allowed=f"at most {MAX_FILES:,}")
        if not is_inside(result_path, root):
            problems.add_problem(result_path, OUTSIDE)
        elif result_path.parent.name.isascii() and result_path.parent.name.isdigit():
            numbered.append((int(result_path.parent.name), result_path))
        else:
            problems.add_problem(result_path, "not the number of a result")
    for _, result_path in sorted(numbered):
        try:
            result = _read_object(result_path, problems)
        except InputError as error:
            problems.add_problem(result_path, error)
            continue
        yield RawRun(result_path, folder.resolve().name, _restore_stdout(result), specification)


def _read_single_document(path: Path, problems: ReadProblems) -> Iterator[RawRun]:
    """The run of a single file."""
    try:
        stdout = path.suffix == ".stdout"
        document = {"stdout": _read_output(path, problems)} if stdout else _read_object(path, problems)
    except InputError as error:
        problems.add_problem(path, error)
        return
    if "benchmarks" in document and "stdout" not in document:
        problems.add_problem(path, "a document of pyperf, not of Amun (--format pyperf)")
    elif "job_log" in document:
        yield from _read_older_document(path, document, problems)
    elif any(key in document for key in _RESULT_KEYS):
        yield RawRun(path, path.stem, _restore_stdout(document))
    else:
        yield RawRun(path, path.stem, {"stdout": document})


def _read_older_document(path: Path, document: Mapping[str, Any], problems: ReadProblems) -> Iterator[RawRun]:
    """A document of older releases: the result in `job_log`, times in `status`."""
    name = document.get("inspection_id")
    specification = document.get("specification")
    log, status = document.get("job_log"), document.get("status")
    if log is None:
        problems.add_problem(path, "nothing was run: it has no job_log (did its build fail?)")
        return
    result = dict(log) if isinstance(log, Mapping) else {"stdout": log}
    job = status.get("job") if isinstance(status, Mapping) else None
    if isinstance(job, Mapping):
        times = {
            "start_datetime": job.get("started_at"),
            "end_datetime": job.get("finished_at"),
            "node": job.get("node"),
        }
        result = {key: value for key, value in times.items() if value is not None} | result
    yield RawRun(
        path,
        name if isinstance(name, str) else path.stem,
        _restore_stdout(result),
        specification if isinstance(specification, Mapping) else {},
    )


def _restore_stdout(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A result whose printed document was put at its top, with the document back in `stdout`."""
    if "stdout" in result or "@result" not in result:
        return result
    outer = {*_RESULT_KEYS, "stderr", "hostname", "os_release", "runtime_environment", "datetime"}
    outer |= {"start_datetime", "end_datetime", "node"}
    printed = {key: value for key, value in result.items() if key not in outer}
    return {key: value for key, value in result.items() if key in outer} | {"stdout": printed}


def _read_object(path: Path, problems: ReadProblems) -> dict[str, Any]:
    try:
        document = json.loads(problems.read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError("not readable JSON", found=str(error)[:120]) from None
    if not isinstance(document, dict):
        raise InputError("a JSON object is needed", found=type(document).__name__)
    return _check_depth(document)


def _read_output(path: Path, problems: ReadProblems) -> Any:
    """Read what a script printed: its JSON, or the text where it is not JSON."""
    text = problems.read_bytes(path).decode("utf-8", "replace")
    try:
        return _check_depth(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _check_depth(document: _Any) -> _Any:
    """JSON data that is not nested so deep that what walks over it would fail."""
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        inner = [
            list(node.values()) if isinstance(node, dict) else node for node in level if isinstance(node, dict | list)
        ]
        level = [node for nodes in inner for node in nodes if isinstance(node, dict | list)]
        if not level:
            return _check_encodable(document)
    raise InputError(f"nested more than {MAX_DEPTH} deep", found="a deeper one")


def _check_encodable(document: _Any) -> _Any:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError("half of a pair of code units in a text", found="a text that no file can hold") from None
    return document


def read_script(specification: Mapping[str, Any], path: Path, fetch: bool) -> tuple[str, list[str]]:
    """The script's text, and what to note of where it came from."""
    text = specification.get("script")
    if not isinstance(text, str) or not text.strip():
        raise InputError("no script", where=f"{path}, script", do="give its text, or its path beside the specification")
    if re.match(r"[a-z][a-z0-9+.-]*://", text.strip(), re.IGNORECASE):
        return _fetch_script(text.strip(), path, fetch)
    if "\n" in text.strip() or not text.strip().endswith(".py"):
        return text, []
    beside = _normalise_inner_path(text.strip(), f"{path}, script")
    try:
        with (path.parent / beside).open("rb") as file:
            raw = file.read(MAX_SCRIPT_BYTES + 1)
        text = raw.decode("utf-8")
    except (OSError, ValueError) as error:
        raise InputError("cannot read the script", where=f"{path}, script", found=f"{beside}: {error}"[:200]) from None
    if len(raw) > MAX_SCRIPT_BYTES:
        raise InputError("too large for a script", where=f"{path}, script", allowed="up to 1 MiB")
    return text, []


def _fetch_script(url: str, path: Path, fetch: bool) -> tuple[str, list[str]]:
    if redaction.has_user_info(url):
        # It would be written down with the notes, and told in errors.
        raise ConfigError(
            "a user or password in the script's URL",
            where=f"{path}, script",
            do="leave it out; or load the script yourself and name its file beside the specification",
        )
    shown = url[:200]
    if not fetch:
        raise ConfigError(
            "the script lies on a server",
            where=f"{path}, script",
            found=shown,
            do="read it first; then --fetch-script loads and runs it (its sha256 is noted)",
        )
    import http.client
    import urllib.error
    import urllib.request

    if not url.lower().startswith(("http://", "https://")):
        raise ConfigError("not a place to fetch a script from", where=f"{path}, script", found=shown, allowed="http(s)")
    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:  # noqa: S310 - http(s) alone
            raw = answer.read(MAX_SCRIPT_BYTES + 1)
        text = raw.decode("utf-8")
    except http.client.HTTPException as error:
        # Its text is what the server sent.
        raise RunFailedError("cannot fetch the script", where=shown, found=type(error).__name__) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the answer, too
        raise RunFailedError("cannot fetch the script", where=shown, found=str(reason)[:200]) from None
    if len(raw) > MAX_SCRIPT_BYTES:
        raise InputError("too large for a script", where=shown, allowed="up to 1 MiB")
    return text, [f"script fetched from {shown}, sha256 {hashlib.sha256(raw).hexdigest()}"]


def read_extra_files(specification: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The files that lie beside the script, by name; none may leave the run's folder."""
    files = specification.get("files") or []
    if not isinstance(files, list) or len(files) > MAX_EXTRA_FILES:
        raise InputError(
            "not a list of files", where=f"{path}, files", allowed=f"at most {MAX_EXTRA_FILES} of path, content"
        )
    texts: dict[str, str] = {}
    for number, entry in enumerate(files):
        where = f"{path}, files[{number}]"
        if not isinstance(entry, Mapping) or not all(isinstance(entry.get(key), str) for key in ("path", "content")):
            raise InputError("not a file", where=where, allowed="path and content, both texts")
        name = _normalise_inner_path(entry["path"], where)
        if name == "script.py" or name in texts:
            raise InputError("a file of this name is there already", where=where, found=name)
        texts[name] = entry["content"]
    return texts


def _normalise_inner_path(text: str, where: str) -> str:
    """A path that stays in its folder, normalised."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text or len(text) > 200:
        raise InputError(
            "a path that leaves the run's folder", where=where, found=text[:200], allowed="relative, no .."
        )
    return str(path)
