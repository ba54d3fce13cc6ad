"""Import Amun's inspections as sessions: run documents of all layouts, one arm per lock, one case per indicator."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from workbench.core import redaction
from workbench.core.data_files import measure_depth
from workbench.core.errors import ConfigError, InputError, refuse_os_errors
from workbench.core.files import read_up_to
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract import documents
from workbench.indicators.contract.documents import DocumentError, Status
from workbench.indicators.contract.indicator import Indicator
from workbench.indicators.store import session_import
from workbench.indicators.store.archive import INSPECTIONS, MAX_RESULT_BYTES, OUTSIDE, SESSION_FILE, Arm, is_inside
from workbench.indicators.store.import_formats import ImportFormat, ImportOptions
from workbench.indicators.store.session_import import ImportedCase, ImportedRun, ImportReport, get_part, text_or_empty

MAX_PACKAGES = 5000
_PACKAGES = ("packages", "dev-packages", "default", "develop")
_VERSION = re.compile(r"==\s*([0-9A-Za-z][0-9A-Za-z.!+_-]{0,99})")
MAX_STDERR = 64 << 10
MAX_FILES = 100_000
MAX_DEPTH = 50
MAX_TOTAL_BYTES = 1 << 30
SUFFIXES = (".json", ".stdout")
_Any = TypeVar("_Any")
_RESULT_KEYS = ("stdout", "usage", "exit_code", "hwinfo", "script_sha256")


def build_arm(
    specification: Mapping[str, Any], document: Mapping[str, Any], component: str | None, names: dict[str, str]
) -> Arm:
    """The arm of a run; runs of the same lock, Python, image and native packages have the same.

    `specification`, `document`: As Amun keeps them; an empty specification makes the stack unknown but for the
    component.
    `names`: Names that are taken: name to key. What is given here gets a name of its own.
    """
    lock_section = get_part(specification, "python", "requirements_locked", "default")
    requirements = get_part(specification, "python", "requirements")
    packages: dict[str, str] = {}
    for name, entry in sorted(lock_section.items())[:MAX_PACKAGES]:
        if isinstance(name, str):
            # Those from a repository have no version.
            match = _VERSION.fullmatch(text_or_empty(get_part({"entry": entry}, "entry").get("version")).strip())
            packages[name[:200]] = match[1] if match else ""
    # As the specification asks for it, else as the run told.
    requires, environment = get_part(requirements, "requires"), get_part(document, "runtime_environment")
    python = (text_or_empty(requires.get("python_version")) or text_or_empty(environment.get("python_version")))[:20]
    notes: dict[str, str] = {"source": "imported"}
    for key in ("base", "packages", "python_packages"):
        if specification.get(key):
            notes[key] = _format_field(_remove_secrets(specification[key]))
    lock = json.dumps(lock_section, sort_keys=True) if packages else ""
    identity: list[Any] = [lock, python, {key: value for key, value in notes.items() if key != "source"}]
    if not packages:
        notes["stack"] = "unknown: there is no lock"
        identity += [component, _format_field(get_part(specification, "python").get("requirements"))]
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    name = component or "unknown stack"
    if packages and (asked := [str(package) for package in get_part(requirements, "packages")][:3]):
        # The requested packages with the versions that they became: tensorflow 2.2.0.
        name = ", ".join(f"{package} {packages.get(package, '')}".strip()[:60] for package in asked)
    if names.setdefault(name, key) != key:
        name = f"{name} {key[:6]}"
        names.setdefault(name, key)
    return Arm(
        name=name,
        stack=name,
        stack_key=key,
        python=python,
        packages=packages,
        lock_sha256=hashlib.sha256(lock.encode()).hexdigest() if lock else "",
        notes=notes,
    )


def clean_specification(specification: Mapping[str, Any]) -> dict[str, Any]:
    """A specification without its server's names, without secrets, without users in its URLs.

    >>> clean_specification({"@amun_api_url": "x", "environment": [{"name": "HUB_TOKEN", "value": "s"}]})
    {'environment': [{'name': 'HUB_TOKEN', 'value': '[redacted]'}]}
    """
    return {
        key: _remove_secrets(value, key)
        for key, value in ((str(key), value) for key, value in specification.items())
        if not key.startswith("@")
    }


def _remove_secrets(value: Any, name: str = "", parent: str = "") -> Any:
    """JSON data without what is named like a secret: by its key, or by the `name` beside it."""
    if is_secret_name(name):
        return redaction.REDACTION_MARK
    if isinstance(value, Mapping):
        item_name = value.get("name")
        hidden = "value" if isinstance(item_name, str) and is_secret_name(item_name) else None
        # In a lock the keys are names of packages: tokenizers, keyring, secretstorage.
        locked = name in _PACKAGES and parent in ("requirements", "requirements_locked")
        return {
            str(key): redaction.REDACTION_MARK
            if key == hidden
            else _remove_secrets(item, "" if locked else str(key), name)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_remove_secrets(item) for item in value]
    return redaction.strip_user_info(value) if isinstance(value, str) else value


def is_secret_name(name: str) -> bool:
    """Whether a name may be that of a secret; errs on the safe side, as these names come from elsewhere.

    >>> [is_secret_name(name) for name in ("AWS_SECRET_ACCESS_KEY", "apiKey", "GH_PAT", "PATH", "verify_ssl")]
    [True, True, True, False, False]
    """
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    if any(part in name.lower() for part in ("secret", "token", "passw", "cred")):
        return True
    return any(word.endswith(("key", "keys")) or word in ("pat", "pats") for word in words)


def _format_field(value: Any) -> str:
    """A field as a short text without users in its URLs."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return redaction.strip_user_info(text)[:500]


def _import_paths(
    paths: list[Path], out: Path, options: ImportOptions, progress: Callable[[int, int], None] | None
) -> ImportReport:
    """Make sessions, one for each machine, of Amun's documents in old layouts and new; the first stack is the baseline.

    `paths`: Inspections' folders, folders of them, single documents, or folders of those.
    """
    from workbench.indicators.shipped.indicator_classes import list_shipped_indicators, load_indicator

    named = [load_indicator(name) for name in options.indicators]
    by_name = {indicator.__name__: indicator for indicator in (*list_shipped_indicators(), *named)}
    problems, notices = ReadProblems(), dict[str, int]()
    # Each file once, however many of the paths lead to it.
    by_path = {raw.path.resolve(): raw for path in paths for raw in read_raw_runs(path, problems)}
    raw_runs = list(by_path.values())
    judged = []
    for index, raw in enumerate(raw_runs):
        judged.append(_classify_raw_run(raw, by_name, notices))
        if progress is not None:
            progress(index + 1, len(raw_runs))
    if not judged:
        lines = [f"{path}: {reason}" for path, reason in problems.found[:5]]
        raise InputError("no readable run", found=lines or None)
    # Runs with their arms and machines; one that does not tell what it measured is put beside its siblings.
    siblings: dict[str, _CheckedDocument] = {}
    for entry in judged:
        if entry.thing is not None:
            siblings.setdefault(entry.raw.inspection, entry)
    runs = []
    names: dict[str, str] = {}
    for entry in judged:
        sibling = siblings.get(entry.raw.inspection)
        component = entry.component or (sibling.component if sibling else None)
        arm = build_arm(entry.raw.specification, entry.document, component, names)
        thing = entry.thing or (sibling.thing if sibling else None)
        if thing is None:
            # A case of its own, by the name that the inspection or document has.
            identifier = entry.raw.specification.get("identifier")
            name = identifier if isinstance(identifier, str) and identifier else entry.raw.inspection
            version = str(entry.document.get("script_sha256") or "")[:12] or session_import.UNKNOWN
            thing = ImportedCase(session_import.UNKNOWN, version, label=name[:80])
        start, end = entry.document.get("start_datetime"), entry.document.get("end_datetime")
        runs.append(
            ImportedRun(
                arm=arm,
                thing=thing,
                hardware=session_import.parse_hardware(entry.document),
                status=entry.status,
                document=entry.document,
                reason=entry.reason,
                failed_checks=entry.failed_checks,
                duration_s=session_import.compute_elapsed_s(start, end),
                specification=clean_specification(entry.raw.specification),
            )
        )
    notes = [f"{notice} ({count} document(s))" for notice, count in notices.items()]
    sessions = session_import.write_sessions(runs, out, baseline=options.baseline, notes=notes)
    return ImportReport(sessions, problems.found, notices)


@dataclass(frozen=True)
class _CheckedDocument:
    """A document with what was found of it; `thing` is null where it does not tell what it measured."""

    raw: RawRun
    document: dict[str, Any]
    status: Status
    reason: str | None
    failed_checks: tuple[str, ...]
    component: str | None
    thing: ImportedCase | None


def _classify_raw_run(
    raw: RawRun, indicators: Mapping[str, type[Indicator]], notices: dict[str, int]
) -> _CheckedDocument:
    """Status of a run, and the case that its document belongs to; notices are counted in `notices`."""
    # A result without the names of machines, its times under today's names.
    result = raw.result
    hwinfo, platform = get_part(result, "hwinfo"), get_part(result, "hwinfo", "platform")
    names = (result.get("hostname"), result.get("node"), platform.get("node"))
    # A short name would be found in other words.
    hosts = [name for name in names if isinstance(name, str) and len(name) >= 6]
    fields = {key: value for key, value in result.items() if key not in ("hostname", "node")}
    if platform:
        fields["hwinfo"] = {**hwinfo, "platform": {key: value for key, value in platform.items() if key != "node"}}
    cleaned: dict[str, Any] = redaction.redact_value(fields, hosts)
    cleaned.setdefault("stdout", None)
    cleaned.setdefault("start_datetime", cleaned.get("datetime"))
    cleaned["stderr"] = str(cleaned.get("stderr") or "")[:MAX_STDERR]
    document = {key: value if key == "stdout" else _replace_non_finite(value) for key, value in cleaned.items()}
    printed = document["stdout"]
    component = (printed.get("component") or printed.get("framework")) if isinstance(printed, Mapping) else None
    component = component[:60] if isinstance(component, str) and component else None
    script = document.get("script_sha256") or f"component {component}"
    try:
        exit_code = document.get("exit_code")
        if exit_code not in (0, None):
            raise DocumentError("exit code", f"exit code {str(exit_code)[:20]}")
        indicator, checked, notice = _validate_output(printed, indicators)
    except DocumentError as error:
        if isinstance(printed, dict | list) and error.status in ("not finite", "too long"):
            document["stdout"] = json.dumps(printed)[: documents.MAX_STDOUT_BYTES]  # JSON has no such numbers
        return _CheckedDocument(raw, document, error.status, error.reason, (), component, None)
    if notice is not None:
        notices[notice] = notices.get(notice, 0) + 1
    # Two scripts of one name measure different things: their versions differ, and are never compared.
    version = indicator.version({"imported": script})
    thing = ImportedCase(indicator.__name__, version, indicator, dict(checked.parameters))
    return _CheckedDocument(raw, document, "ok", None, checked.failed_checks, checked.component or component, thing)


def _validate_output(
    printed: Any, indicators: Mapping[str, type[Indicator]]
) -> tuple[type[Indicator], documents.Document, str | None]:
    """The indicator and the checked document of what was printed, and the notice about its name; null for none.

    `printed`: JSON value, or the text if it was none. `indicators`: Known ones by name. A document of another name is
    taken for one of upstream's, and gets the name of that (`thoth_indicators`).
    """
    if printed is None or printed == {} or (isinstance(printed, str) and not printed.strip()):
        raise DocumentError("empty", "nothing on stdout")
    if not isinstance(printed, dict):
        raise DocumentError("not JSON", f"a JSON object is needed; it begins {str(printed)[:60]!r}")
    document = documents.parse_document(json.dumps(printed).encode())
    notice, indicator = None, indicators.get(str(document.get("name")))
    if indicator is None:
        try:
            document, notice = thoth_indicators.amend_document(document)
            indicator, _ = thoth_indicators.find_model(document)
        except InputError as error:
            raise DocumentError("invalid document", f"{error.what}: {error.facts['found']}") from None
    return indicator, documents.validate_document(document, indicator), notice


def _replace_non_finite(value: Any) -> Any:
    """JSON data with null for numbers that are none."""
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        with refuse_os_errors("cannot be read"):
            content = read_up_to(path, MAX_RESULT_BYTES)
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
            do=f"import it unchanged: workbench indicators sync {path}",
        )
    root, entries = path.resolve(), [path]
    if not _is_inspection(path):
        entries = sorted(path.iterdir())
        if len(entries) > MAX_FILES:
            raise InputError("too many files", where=path, found=len(entries), allowed=f"at most {MAX_FILES:,}")
        entries = [
            entry
            for entry in entries
            if (entry.is_file() and entry.suffix in SUFFIXES) or (entry.is_dir() and _is_inspection(entry))
        ]
    for entry in entries:
        if is_inside(entry, root):
            yield from (
                _read_inspection(entry, problems, root) if entry.is_dir() else _read_single_document(entry, problems)
            )
        else:
            problems.add_problem(entry, OUTSIDE)
    if not entries:
        raise InputError(
            "no documents of Amun there",
            where=path,
            allowed="ID/build/specification with ID/results/N/result, *.json or *.stdout",
        )


def _is_inspection(path: Path) -> bool:
    return (path / "build" / "specification").is_file() or (path / "results").is_dir()


def _read_inspection(folder: Path, problems: ReadProblems, root: Path) -> Iterator[RawRun]:
    """The runs of an inspection's folder in order of their numbers; unreadable ones become problems."""
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
        document: dict[str, Any]
        if not stdout:
            document = _read_object(path, problems)
        else:
            # What a script printed: its JSON, or the text where it is none.
            text = problems.read_bytes(path).decode("utf-8", "replace")
            try:
                document = {"stdout": _check_json(json.loads(text))}
            except (ValueError, RecursionError):
                document = {"stdout": text}
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
    return _check_json(document)


def _check_json(document: _Any) -> _Any:
    """JSON data that what walks over it can bear, and that a file can hold."""
    if measure_depth(document, MAX_DEPTH) > MAX_DEPTH:
        raise InputError(f"nested more than {MAX_DEPTH} deep", found="a deeper one")
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        found = "a text that cannot be stored in a file"
        raise InputError("half of a pair of code units in a text", found=found) from None
    return document


def _is_amun(path: Path) -> bool:
    """Whether a path is that of an inspection or a session; a session of this project's own is refused when read."""
    if path.is_dir():
        marks = ("results/*/result", "build/specification", SESSION_FILE, INSPECTIONS)
        return any(next(path.glob(mark), None) is not None for mark in marks)
    return path.suffix == ".stdout" or not path.exists()


FORMAT = ImportFormat(
    name="amun",
    tool="Amun",
    noun="document of Amun",
    marks=(('"(@result|@parameters|script_sha256|hwinfo|job_log)"',),),
    owns=_is_amun,
    takes=frozenset({"indicator", "baseline"}),
    import_paths=_import_paths,
)
