"""An Amun specification as something that can be run here: a script, a lock, an environment, rounds.

What a process of this machine cannot honour (an image, native packages, hardware to choose) is refused by name, never
passed over: `ignored` names what is left out knowingly.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, InputError
from workbench.indicators import pipfile
from workbench.indicators.running.planning import BATCH
from workbench.indicators.specified_sources import files_beside, script
from workbench.indicators.stacks.model import Package, Stack, make_stack
from workbench.indicators.stacks.request import refuse_secrets

MOST_BYTES = 16 << 20
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


@dataclass(frozen=True)
class Specified:
    """What a specification asks for.

    Attributes
    ----------
    name
        Its identifier, or its file's name.
    sources
        `script.py` and the files beside it.
    environment
        Variables for the script.
    rounds
        Its batch size; null when it tells none.
    threads, memory_bytes
        What its runs request; null where they request nothing.
    packages
        The lock's packages with hashes, by name.
    python
        The minor version that the lock is for; null when it tells none.
    notes
        What was left out, and where the script came from.
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

    def stack(self) -> Stack:
        """Its lock as a stack for this machine and this Python."""
        from workbench.indicators.stacks.target import this_platform, this_python

        return make_stack(self.packages, python=this_python(), platform=this_platform(), name=self.name)


def read(path: str | Path, *, ignored: Collection[str] = (), fetch: bool = False) -> list[Specified]:
    """The specifications of a file, of an inspection's folder (build/specification), or of a folder of files.

    Parameters
    ----------
    path
        JSON or YAML.
    ignored
        Fields that are left out knowingly, such as `base`.
    fetch
        Load a script that is named by a URL.

    Raises
    ------
    InputError
        It cannot be read, or is no specification.
    ConfigError
        It asks for what cannot be honoured, and that is not ignored: all such fields in one error.
    RunFailedError
        The script cannot be fetched.
    """
    return [_specified(file, frozenset(ignored), fetch) for file in _files(Path(path))]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    for one in (path / "build" / "specification", path / "specification"):
        if one.is_file():
            return [one]
    if found := sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file()):
        return found
    raise InputError("no specification there", where=path, allowed=f"build/specification, or *{', *'.join(SUFFIXES)}")


def _specified(path: Path, ignored: frozenset[str], fetch: bool) -> Specified:
    found = _document(path)
    left_out = _left_out(found, ignored, path)
    name = re.sub(r"[\x00-\x1f\x7f]+", " ", str(found.get("identifier") or path.stem))[:80].strip() or "specified"
    notes = [f"{name}: left out knowingly: {field}" for field in left_out]
    text, told = script(found, path, fetch)
    packages, python = pipfile.packages(_at(found, "python.requirements_locked"), str(path), ignored)
    requests = _mapping(_mapping(found, "run", path), "requests", path)
    return Specified(
        name=name,
        sources={"script.py": text, **files_beside(found, path)},
        environment=_environment(found, path),
        rounds=_batch_size(found, path),
        threads=_cpus(requests.get("cpu"), path),
        memory_bytes=_memory(requests.get("memory"), path),
        packages=packages,
        python=python,
        notes=(*notes, *told),
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError("cannot read the specification", where=path, found=error.strerror) from None
    if len(raw) > MOST_BYTES:
        raise InputError("too large for a specification", where=path, allowed=f"up to {MOST_BYTES >> 20} MiB")
    try:
        found = _parsed(raw.decode("utf-8"), path)
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON, nor YAML", where=path, found=str(error)[:200]) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise InputError("not a specification", where=path, found=type(found).__name__, allowed="an object")
    if unknown := [key for key in found if key not in _KNOWN and not key.startswith("@")]:
        raise InputError(
            "not a specification", where=path, found=[key[:60] for key in unknown[:5]], allowed=sorted(_KNOWN)
        )
    return found


def _parsed(text: str, path: Path) -> Any:
    if path.suffix not in (".yaml", ".yml"):
        try:
            return json.loads(text)
        except ValueError:
            if path.suffix == ".json":
                raise
    import yaml

    class Plain(yaml.SafeLoader):
        """An alias can stand for itself many times over: a few lines would fill the memory when they are walked."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Refuse aliases."""
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not read")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Plain)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _left_out(found: Mapping[str, Any], ignored: Collection[str], path: Path) -> list[str]:
    """What is left out knowingly; the rest of what cannot be honoured is refused, all of it in one go."""
    asked = {
        "base": found.get("base") not in (None, "", BATCH) and "no image is built: runs are processes of this machine",
        "packages": found.get("packages") and "native packages are not installed",
        "python_packages": found.get("python_packages") and "only what the lock has is installed",
        "update": found.get("update") and "no image is updated",
        "upgrade_pip": found.get("upgrade_pip") and "pip takes no part",
        "python.runtime_environment": _at(found, "python.runtime_environment") and "this machine is the only one",
        "build.requests.hardware": _at(found, "build.requests.hardware") and "this machine is the only one",
        "run.requests.hardware": _at(found, "run.requests.hardware") and "this machine is the only one",
    }
    for name, known in (("run", ("requests",)), ("run.requests", ("cpu", "memory", "hardware"))):
        part = _at(found, name)
        for key in part if isinstance(part, Mapping) else ():
            if key not in known:
                asked[f"{name}.{str(key)[:60]}"] = part[key] and "a process is given cores and memory alone"
    problems = {field: why for field, why in asked.items() if why}
    if needless := [field for field in ignored if field not in asked and field != "python_version"]:
        raise ConfigError(
            "not a field to leave out", where="--ignore", found=needless, allowed=[*asked, "python_version"]
        )
    if open_ := {field: why for field, why in problems.items() if field not in ignored}:
        raise ConfigError(
            "the specification asks for what a process cannot honour",
            where=path,
            found=[f"{field} ({why})" for field, why in open_.items()],
            do=" ".join(f"--ignore {field}" for field in open_) + ", to leave that out knowingly",
        )
    return sorted(problems)


def _at(found: Any, field: str) -> Any:
    for key in field.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _mapping(found: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = found.get(key) or {}
    if not isinstance(value, Mapping):
        raise InputError("not a specification", where=f"{path}, {key}", found=type(value).__name__, allowed="an object")
    return value


def _environment(found: Mapping[str, Any], path: Path) -> dict[str, str]:
    listed = found.get("environment") or []
    if not isinstance(listed, list):
        raise InputError("not a list of variables", where=f"{path}, environment", allowed="name and value each")
    variables: dict[str, str] = {}
    for number, one in enumerate(listed):
        where = f"{path}, environment[{number}]"
        name = one.get("name") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise InputError("not a variable", where=where, allowed="name (letters, digits, _) and value")
        value = one.get("value")
        if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
            raise InputError("not a variable's value", where=where, found=type(value).__name__, allowed="a text")
        # It would be written into every result's specification.
        refuse_secrets({"environment": [one]}, where, "a specification")
        variables[name] = str(value)
    return variables


def _batch_size(found: Mapping[str, Any], path: Path) -> int | None:
    size = found.get("batch_size")
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 1000:
        raise InputError("not a number of runs", where=f"{path}, batch_size", found=size, allowed="1 to 1000")
    return size


def _cpus(text: Any, path: Path) -> int | None:
    """Whole cores for a request such as 2, "1.5" or "500m"."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(m?)", str(text))
    cores = 0.0 if found is None else float(found[1]) / (1000 if found[2] else 1)
    if cores <= 0:
        raise InputError("not a number of cores", where=f"{path}, run.requests.cpu", found=text, allowed="2, or 500m")
    return math.ceil(cores)


def _memory(text: Any, path: Path) -> int | None:
    if text is None:
        return None
    found = _MEMORY.fullmatch(str(text))
    if found is None or not float(found[1]):
        raise InputError("not a size", where=f"{path}, run.requests.memory", found=text, allowed="4Gi, or 256Mi")
    return int(float(found[1]) * _FACTORS[found[2]])
