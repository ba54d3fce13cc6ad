"""Read an Amun specification (script, Pipfile.lock, environment, rounds) so that it can run here."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.core import redaction
from workbench.core.data_files import parse_json, parse_yaml, read_text_file
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.indicators.measurement.session_plan import BATCH
from workbench.indicators.stacks.stack_request import refuse_secrets
from workbench.indicators.stacks.stack_sets import Package, Stack, build_stack

_PINNED = re.compile(r"==\s*([^\s,;*]+)")
_NOT_AN_INDEX = ("git", "hg", "svn", "bzr", "path", "file", "editable")
MAX_BYTES = 16 << 20
MAX_SCRIPT_BYTES = 1 << 20
MAX_EXTRA_FILES = 200
FETCH_TIMEOUT_S = 30
SUFFIXES = (".json", ".yaml", ".yml")
_KNOWN = frozenset(
    {
        *("base", "identifier", "package_manager", "packages", "python_packages", "python", "update", "upgrade_pip"),
        *("batch_size", "build", "run", "files", "environment", "script", "send_messages", "force_sync"),
    }
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(Ki|Mi|Gi|Ti|k|K|M|G|T|)")
_FACTORS = {
    "": 1,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def read_lock_packages(locked: Any, path: str, ignored: Collection[str] = ()) -> tuple[tuple[Package, ...], str | None]:
    """The packages of a lock that apply here, and the minor version of Python that it is for (null: not told).

    Development packages take no part.
    """
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

    from workbench.indicators.stacks.package_index import this_python_version

    where = f"{path}, python.requirements_locked"
    if not isinstance(locked, Mapping) or not isinstance(locked.get("default"), Mapping):
        raise InputError(
            "no lock",
            where=where,
            allowed="a Pipfile.lock with hashes",
            do="solve the requirements first: workbench indicators stacks --requirements FILE",
        )
    python: Any = locked
    for key in ("_meta", "requires", "python_version"):
        python = python.get(key) if isinstance(python, Mapping) else None
    here = ".".join(this_python_version().split(".")[:2])
    if python is not None and str(python) != here and "python_version" not in ignored:
        raise ConfigError(
            "the lock is for another Python",
            where=where,
            found=str(python)[:20],
            allowed=here,
            do="run the workbench with that Python; or --ignore python_version, if its files fit this one",
        )
    packages = []
    for name, entry in locked["default"].items():
        markers = entry.get("markers") if isinstance(entry, Mapping) else None
        try:
            if markers is not None and not Marker(str(markers)).evaluate():
                continue
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName) as error:
            raise InputError("a marker that cannot be read", where=where, found=str(error)[:200]) from None
        packages.append(_build_package(str(name), entry, where))
    if not packages:
        raise InputError("an empty lock", where=where)
    names = [package.name for package in packages]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("a package twice in a lock", where=where, found=twice)
    return tuple(packages), None if python is None else str(python)


def _build_package(name: str, entry: Any, where: str) -> Package:
    """A package of the lock; refused without an exact version or without hashes."""
    from packaging.utils import canonicalize_name
    from pydantic import ValidationError

    version = entry.get("version") if isinstance(entry, Mapping) else None
    pinned = _PINNED.fullmatch(version) if isinstance(version, str) else None
    hashes = entry.get("hashes") if isinstance(entry, Mapping) else None
    if any(isinstance(entry, Mapping) and key in entry for key in _NOT_AN_INDEX) or pinned is None or not hashes:
        raise InputError(
            "a package without version or hashes", where=f"{where}, {name[:80]}", allowed="version ==… and hashes"
        )
    try:
        return Package(name=canonicalize_name(name), version=pinned[1], hashes=tuple(sorted(set(map(str, hashes)))))
    except (ValidationError, TypeError) as error:
        message = str(error).splitlines()[-1]
        raise InputError("not a package of a lock", where=f"{where}, {name[:80]}", found=message[:200]) from None


@dataclass(frozen=True)
class Specification:
    """Contents of a specification: what it asks for.

    `rounds`: Its batch size; null when it tells none.
    `threads`, `memory_bytes`: What its runs request; null where they request nothing.
    `python`: The minor version that the lock is for; null when it tells none.
    """

    name: str
    sources: Mapping[str, str]
    environment: Mapping[str, str]
    rounds: int | None
    threads: int | None
    memory_bytes: int | None
    packages: tuple[Package, ...]
    python: str | None
    notes: tuple[str, ...]

    def build_stack(self) -> Stack:
        """Its lock as a stack for this machine and this Python."""
        from workbench.indicators.stacks.package_index import this_platform, this_python_version

        return build_stack(self.packages, python=this_python_version(), platform=this_platform(), name=self.name)


def read_specifications(path: str | Path, *, ignored: Collection[str] = (), fetch: bool = False) -> list[Specification]:
    """The specifications of a file, of an inspection's folder (build/specification), or of a folder of files."""
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = [file for file in (path / "build" / "specification", path / "specification") if file.is_file()][:1]
        files = files or sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        allowed = f"build/specification, or *{', *'.join(SUFFIXES)}"
        raise InputError("no specification there", where=path, allowed=allowed)
    return [_load_specification(file, frozenset(ignored), fetch) for file in files]


def _load_specification(path: Path, ignored: frozenset[str], fetch: bool) -> Specification:
    # The document of a JSON or YAML file, which must be an object with known keys.
    text = read_text_file(path, noun="specification", max_bytes=MAX_BYTES)
    try:
        document = _parse_text(text, path.suffix)
    except InputError as error:
        raise InputError("not JSON, nor YAML", where=path, found=" ".join(str(error).split())[:200]) from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise InputError("not a specification", where=path, found=type(document).__name__, allowed="an object")
    if unknown := [key for key in document if key not in _KNOWN and not key.startswith("@")]:
        raise InputError(
            "not a specification", where=path, found=[key[:60] for key in unknown[:5]], allowed=sorted(_KNOWN)
        )
    left_out = _list_ignored_fields(document, ignored, path)
    name = re.sub(r"[\x00-\x1f\x7f]+", " ", str(document.get("identifier") or path.stem))[:80].strip() or "specified"
    notes = [f"{name}: ignored on request: {field}" for field in left_out]
    text, script_notes = _read_script(document, path, fetch)
    packages, python = read_lock_packages(_get_field(document, "python.requirements_locked"), str(path), ignored)
    requests = _get_mapping(_get_mapping(document, "run", path), "requests", path)
    cores: float | None = None
    if (asked := requests.get("cpu")) is not None:
        # Such as 2, "1.5" or "500m".
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(m?)", str(asked))
        cores = 0.0 if match is None else float(match[1]) / (1000 if match[2] else 1)
        if cores <= 0:
            where = f"{path}, run.requests.cpu"
            raise InputError("not a number of cores", where=where, found=asked, allowed="2, or 500m")
    memory_bytes: int | None = None
    if (asked := requests.get("memory")) is not None:
        match = _MEMORY.fullmatch(str(asked))
        if match is None or not float(match[1]):
            raise InputError("not a size", where=f"{path}, run.requests.memory", found=asked, allowed="4Gi, or 256Mi")
        memory_bytes = int(float(match[1]) * _FACTORS[match[2]])
    rounds = document.get("batch_size")
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= 1000):
        raise InputError("not a number of runs", where=f"{path}, batch_size", found=rounds, allowed="1 to 1000")
    return Specification(
        name=name,
        sources={"script.py": text, **_read_extra_files(document, path)},
        environment=_read_environment(document, path),
        rounds=rounds,
        threads=None if cores is None else math.ceil(cores),
        memory_bytes=memory_bytes,
        packages=packages,
        python=python,
        notes=(*notes, *script_notes),
    )


def _parse_text(text: str, suffix: str) -> Any:
    """Data of a text by the suffix of its file; without a known one, of YAML where it is not JSON."""
    if suffix not in (".yaml", ".yml"):
        try:
            return parse_json(text, noun="specification")
        except InputError:
            if suffix == ".json":
                raise
    return parse_yaml(text, noun="specification")


def _list_ignored_fields(document: Mapping[str, Any], ignored: Collection[str], path: Path) -> list[str]:
    """List what is left out knowingly; refuse whatever else cannot be honoured, all at once."""
    requests = {
        "base": document.get("base") not in (None, "", BATCH)
        and "no image is built: runs are processes of this machine",
        "packages": document.get("packages") and "native packages are not installed",
        "python_packages": document.get("python_packages") and "only what the lock has is installed",
        "update": document.get("update") and "no image is updated",
        "upgrade_pip": document.get("upgrade_pip") and "pip takes no part",
        "python.runtime_environment": _get_field(document, "python.runtime_environment")
        and "this machine is the only one",
        "build.requests.hardware": _get_field(document, "build.requests.hardware") and "this machine is the only one",
        "run.requests.hardware": _get_field(document, "run.requests.hardware") and "this machine is the only one",
    }
    for name, allowed_keys in (("run", ("requests",)), ("run.requests", ("cpu", "memory", "hardware"))):
        part = _get_field(document, name)
        for key in part if isinstance(part, Mapping) else ():
            if key not in allowed_keys:
                requests[f"{name}.{str(key)[:60]}"] = part[key] and "a process is given cores and memory alone"
    problems = {field: reason for field, reason in requests.items() if reason}
    if needless := [field for field in ignored if field not in requests and field != "python_version"]:
        raise ConfigError(
            "not a field that can be ignored", where="--ignore", found=needless, allowed=[*requests, "python_version"]
        )
    if open_ := {field: reason for field, reason in problems.items() if field not in ignored}:
        raise ConfigError(
            "the specification asks for what a process cannot honour",
            where=path,
            found=[f"{field} ({reason})" for field, reason in open_.items()],
            do=" ".join(f"--ignore {field}" for field in open_) + ", to ignore it on purpose",
        )
    return sorted(problems)


def _get_field(value: Any, field: str) -> Any:
    for key in field.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _get_mapping(document: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = document.get(key) or {}
    if not isinstance(value, Mapping):
        raise InputError("not a specification", where=f"{path}, {key}", found=type(value).__name__, allowed="an object")
    return value


def _read_script(specification: Mapping[str, Any], path: Path, fetch: bool) -> tuple[str, list[str]]:
    """The script's text, and what to note of where it came from."""
    text = specification.get("script")
    if not isinstance(text, str) or not text.strip():
        raise InputError(
            "no script", where=f"{path}, script", do="give its text, or its path in the folder of the specification"
        )
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
    """Download a script; refused without `fetch`, which says that the user has read it."""
    if redaction.has_user_info(url):
        # It would be written down with the notes, and told in errors.
        raise ConfigError(
            "a user or password in the script's URL",
            where=f"{path}, script",
            do="remove it; or download the script and name its file in the folder of the specification",
        )
    shown = url[:200]
    if not fetch:
        raise ConfigError(
            "the script is on a server",
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


def _read_extra_files(specification: Mapping[str, Any], path: Path) -> dict[str, str]:
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
            raise InputError("a file of this name already exists", where=where, found=name)
        texts[name] = entry["content"]
    return texts


def _normalise_inner_path(text: str, where: str) -> str:
    """A path that stays in its folder, normalised."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text or len(text) > 200:
        raise InputError("a path outside the run's folder", where=where, found=text[:200], allowed="relative, no ..")
    return str(path)


def _read_environment(document: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Variables of the runs; secrets are refused, since they would be written into results."""
    listed = document.get("environment") or []
    if not isinstance(listed, list):
        raise InputError("not a list of variables", where=f"{path}, environment", allowed="name and value each")
    variables: dict[str, str] = {}
    for number, entry in enumerate(listed):
        where = f"{path}, environment[{number}]"
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise InputError("not a variable", where=where, allowed="name (letters, digits, _) and value")
        value = entry.get("value")
        if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
            raise InputError("not a variable's value", where=where, found=type(value).__name__, allowed="a text")
        # It would be written into every result's specification.
        refuse_secrets({"environment": [entry]}, where, "a specification")
        variables[name] = str(value)
    return variables
