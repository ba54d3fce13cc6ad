"""Amun's inspections as sessions: one arm a lock, one case an indicator with its parameters.

Each document has a defined outcome: it is held to its indicator's class and either has values or a status that says
why not. Nothing in it can stand in for what every run has (`ru_utime` as a result is refused), padding "SAME" and 1
are both kept, and PyTorch's signal convolution that calls itself PiConv2D is known by its fields, with a notice.
Names of hosts and nodes are dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import redaction
from workbench.errors import InputError
from workbench.indicators import documents, legacy
from workbench.indicators.archive import Arm, Hardware
from workbench.indicators.contract import Indicator
from workbench.indicators.documents import DocumentError, Status
from workbench.indicators.exchange import imported, machines, stacks
from workbench.indicators.exchange.imported import Imported, Run, Thing
from workbench.indicators.exchange.reading import Problems, Raw, raw_runs

MOST_STDERR = 64 << 10


@dataclass(frozen=True)
class Report:
    """What an import made: the sessions, files that could not be read, notices by how often they came."""

    sessions: list[Imported]
    problems: list[tuple[Path, str]]
    notices: dict[str, int]


def import_documents(
    paths: Iterable[Path],
    out: Path,
    *,
    indicators: Iterable[type[Indicator]] = (),
    baseline: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Make sessions of Amun's documents, old layouts and new.

    Parameters
    ----------
    paths
        Inspections' folders, folders of them, single documents, or folders of those; the first stack is the baseline.
    out
        Folder below which each session (one for each machine) gets its own.
    indicators
        Classes that documents may name, beside those that are shipped and those of the old contract.
    baseline
        Name of the stack that others are compared with.
    progress
        Called with (done, of how many).

    Raises
    ------
    InputError
        There are no documents.
    """
    from workbench.indicators.shipped.registry import shipped

    known = {one.__name__: one for one in (*shipped(), *indicators)}
    problems, notices = Problems(), dict[str, int]()
    found = _unique([raw for path in paths for raw in raw_runs(Path(path), problems)])
    judged = []
    for done, raw in enumerate(found):
        judged.append(_judged(raw, known, notices))
        if progress is not None:
            progress(done + 1, len(found))
    if not judged:
        told = [f"{path}: {reason}" for path, reason in problems.found[:5]]
        raise InputError("not one run that could be read", found=told or None)
    runs = _assembled(judged)
    notes = [f"{notice} ({count} document(s))" for notice, count in notices.items()]
    return Report(imported.write(runs, out, baseline=baseline, notes=notes), problems.found, notices)


@dataclass(frozen=True)
class _Judged:
    """A document with what was found of it; `thing` is null where it does not tell what it measured."""

    raw: Raw
    document: dict[str, Any]
    status: Status
    reason: str | None
    failed_checks: tuple[str, ...]
    component: str | None
    thing: Thing | None


def _unique(found: list[Raw]) -> list[Raw]:
    """Each file once, however many of the paths lead to it."""
    return list({raw.path.resolve(): raw for raw in found}.values())


def _judged(raw: Raw, known: Mapping[str, type[Indicator]], notices: dict[str, int]) -> _Judged:
    document = _cleaned(raw.result)
    printed = document["stdout"]
    component = _component(printed)
    script = document.get("script_sha256") or f"component {component}"
    try:
        exit_code = document.get("exit_code")
        if exit_code not in (0, None):
            raise DocumentError("exit code", f"exit code {str(exit_code)[:20]}")
        indicator, checked, notice = _checked(printed, known)
    except DocumentError as error:
        if isinstance(printed, dict | list) and error.status in ("not finite", "too long"):
            document["stdout"] = json.dumps(printed)[: documents.MOST_STDOUT_BYTES]  # JSON has no such numbers
        return _Judged(raw, document, error.status, error.reason, (), component, None)
    if notice is not None:
        notices[notice] = notices.get(notice, 0) + 1
    # Two scripts of one name measure different things: their versions differ, and are never compared.
    version = indicator.version({"imported": script})
    thing = Thing(indicator.__name__, version, indicator, dict(checked.parameters))
    return _Judged(raw, document, "ok", None, checked.failed_checks, checked.component or component, thing)


def _checked(
    printed: Any, known: Mapping[str, type[Indicator]]
) -> tuple[type[Indicator], documents.Document, str | None]:
    """The indicator and the checked document of what was printed.

    Raises
    ------
    DocumentError
        Why it has no values.
    """
    if printed is None or printed == {} or (isinstance(printed, str) and not printed.strip()):
        raise DocumentError("empty", "nothing on stdout")
    if not isinstance(printed, dict):
        raise DocumentError("not JSON", f"a JSON object is needed; it begins {str(printed)[:60]!r}")
    document = documents.decoded(json.dumps(printed).encode())
    notice, indicator = None, known.get(str(document.get("name")))
    if indicator is None:
        try:
            document, notice = legacy.amended(document)
            indicator, _ = legacy.model_for(document)
        except InputError as error:
            raise DocumentError("invalid document", f"{error.what}: {error.facts['found']}") from None
    return indicator, documents.checked(document, indicator), notice


def _cleaned(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without the names of machines, its times under today's names."""
    hwinfo = result.get("hwinfo") if isinstance(result.get("hwinfo"), Mapping) else {}
    platform = hwinfo.get("platform") if isinstance(hwinfo, Mapping) else {}
    node = platform.get("node") if isinstance(platform, Mapping) else None
    names = {result.get("hostname"), result.get("node"), node}
    # A short name would be found in other words.
    hosts = [name for name in names if isinstance(name, str) and len(name) >= 6]
    kept = {key: value for key, value in result.items() if key not in ("hostname", "node")}
    if isinstance(hwinfo, Mapping) and isinstance(platform, Mapping):
        kept["hwinfo"] = {**hwinfo, "platform": {key: value for key, value in platform.items() if key != "node"}}
    cleaned: dict[str, Any] = redaction.clean(kept, hosts)
    cleaned.setdefault("stdout", None)
    cleaned.setdefault("start_datetime", cleaned.get("datetime"))
    cleaned["stderr"] = str(cleaned.get("stderr") or "")[:MOST_STDERR]
    return {key: value if key == "stdout" else _finite(value) for key, value in cleaned.items()}


def _finite(value: Any) -> Any:
    """JSON data with null for numbers that are none."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _component(printed: Any) -> str | None:
    found = (printed.get("component") or printed.get("framework")) if isinstance(printed, Mapping) else None
    return found[:60] if isinstance(found, str) and found else None


def _assembled(judged: list[_Judged]) -> list[Run]:
    """Runs with their arms and machines; one that does not tell what it measured is put beside its siblings."""
    siblings: dict[str, _Judged] = {}
    for one in judged:
        if one.thing is not None:
            siblings.setdefault(one.raw.inspection, one)
    runs = []
    names: dict[str, str] = {}
    for one in judged:
        sibling = siblings.get(one.raw.inspection)
        component = one.component or (sibling.component if sibling else None)
        arm = stacks.arm_of(one.raw.specification, one.document, component, names)
        thing = one.thing or (sibling.thing if sibling else None) or _unknown(one)
        runs.append(_run(one, arm, thing, machines.hardware_of(one.document)))
    return runs


def _unknown(one: _Judged) -> Thing:
    """A case of its own, by the name that the inspection or document has."""
    told = one.raw.specification.get("identifier")
    name = told if isinstance(told, str) and told else one.raw.inspection
    version = str(one.document.get("script_sha256") or "")[:12] or imported.UNKNOWN
    return Thing(imported.UNKNOWN, version, label=name[:80])


def _run(one: _Judged, arm: Arm, thing: Thing, hardware: Hardware) -> Run:
    start, end = one.document.get("start_datetime"), one.document.get("end_datetime")
    return Run(
        arm=arm,
        thing=thing,
        hardware=hardware,
        status=one.status,
        document=one.document,
        reason=one.reason,
        failed_checks=one.failed_checks,
        duration_s=imported.elapsed_s(start, end),
        specification=stacks.cleaned(one.raw.specification),
    )
