"""A run as its document: what the process did, held to what its indicator declares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError

from workbench import redaction
from workbench.indicators import legacy
from workbench.indicators.archive import Arm, Measured, Pressure, Result, Session
from workbench.indicators.contract import Case, Indicator, result
from workbench.indicators.documents import DocumentError, Status, checked, decoded
from workbench.indicators.running import machine
from workbench.indicators.running.schedule import Slot
from workbench.indicators.running.wire import Ended

MOST_TEXT = 64 << 10
"""Bytes that are kept of an output that is no document."""
_MOST_REASON = 400


@dataclass(frozen=True)
class Prepared:
    """A case ready to run: its sources, their digest, and the version of the indicator."""

    case: Case
    sources: Mapping[str, str]
    version: str
    environment: Mapping[str, str]

    @classmethod
    def of(cls, case: Case, environment: Mapping[str, str] | None = None) -> Prepared:
        """Read the script and the files beside it, once for all runs; `environment` has more variables for it."""
        sources = case.indicator.sources()
        own = case.indicator.environment(case.parameters)
        return cls(case, sources, case.indicator.version(sources), {**own, **(environment or {})})

    @property
    def script_sha256(self) -> str:
        """Digest of the script alone, as Amun's results have it."""
        return hashlib.sha256(self.sources["script.py"].encode()).hexdigest()


class Undeclared(Indicator):
    """Stands for a script whose document has a name that no class is declared for: nothing of it is compared."""

    value: float | None = result(unit="", optional=True)


@dataclass(frozen=True)
class _Judged:
    status: Status
    reason: str | None
    document: Any
    failed_checks: tuple[str, ...] = ()


def document(
    session: Session, slot: Slot, arm: Arm, prepared: Prepared, ended: Ended, before: Pressure, after: Pressure
) -> Result:
    """The document of a run, however it ended."""
    judged = _judged(prepared.case, ended)
    isolation = dict(ended.isolation)
    if ended.left_behind:
        isolation["left behind"] = f"{ended.left_behind} process(es), killed"
    measured = Measured(
        session_id=session.session_id,
        arm=arm.name,
        case=slot.case,
        round=slot.round,
        position=slot.position,
        indicator=prepared.case.indicator.__name__,
        indicator_version=prepared.version,
        status=judged.status,
        reason=judged.reason,
        failed_checks=judged.failed_checks,
        signal=ended.signal,
        duration_s=round(ended.duration_s, 6),
        threads=session.threads,
        cpus=session.cpus,
        hardware_key=session.hardware.key,
        stdout_bytes=ended.stdout_bytes,
        stdout_sha256=hashlib.sha256(ended.stdout).hexdigest(),
        before=before,
        after=after,
        isolation=isolation,
    )
    made = Result(
        stdout=judged.document,
        stderr=redaction.clean(ended.stderr.decode("utf-8", errors="replace")),
        exit_code=ended.exit_code,
        script_sha256=prepared.script_sha256,
        usage=dict(ended.usage),
        start_datetime=ended.started_at,
        end_datetime=ended.ended_at,
        os_release=machine.os_release(),
        runtime_environment=machine.runtime_environment(session.hardware, arm.python),
        hwinfo=machine.hwinfo(session.hardware),
        workbench=measured,
    )
    return _writable(made, ended)


def _judged(case: Case, ended: Ended) -> _Judged:
    try:
        found = redaction.clean(decoded(ended.stdout))
    except DocumentError as error:
        return _Judged(*_failure(ended, (error.status, error.reason)), _as_text(ended.stdout))
    if ended.outcome != "exited":
        return _Judged(*_failure(ended, None), found)
    try:
        done = checked(legacy.named_right(found, case.indicator), case.indicator, case.parameters)
    except DocumentError as error:
        return _Judged(error.status, redaction.clean(error.reason) + advice(case), found)
    return _Judged("ok", None, found, done.failed_checks)


def advice(case: Case) -> str:
    """What to do about a document that nobody declared; nothing for others."""
    told = "; declare one (workbench indicators new NAME) and give it with --indicator"
    return told if issubclass(case.indicator, Undeclared) else ""


def _failure(ended: Ended, of_document: tuple[Status, str] | None) -> tuple[Status, str]:
    """Status and reason of a run without values: how the process ended counts before what it printed."""
    if ended.outcome == "exited" and of_document is not None:
        return of_document[0], redaction.clean(of_document[1])[:_MOST_REASON]
    reason = ended.detail
    if ended.outcome in ("exit code", "killed", "out of memory") and (last := _last_line(ended.stderr)):
        reason = f"{reason}: {last}"
    status: Status = "killed" if ended.outcome == "stopped" or ended.outcome == "exited" else ended.outcome
    return status, redaction.clean(reason)[:_MOST_REASON]


def _last_line(stderr: bytes) -> str:
    lines = stderr[-4096:].decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip()[:200] if lines else ""


def _as_text(stdout: bytes) -> str:
    """Amun keeps an output that is no JSON as a text; so does this, up to a size."""
    text: str = redaction.clean(stdout[:MOST_TEXT].decode("utf-8", errors="replace"))
    return text


def _writable(result: Result, ended: Ended) -> Result:
    """JSON can spell halves of characters that no file can hold: then the output is kept as the text it was."""
    try:
        result.model_dump_json()
    except (PydanticSerializationError, UnicodeError):
        reason = "a text in it is no Unicode"
        measured = result.workbench.model_copy(update={"status": "not JSON", "reason": reason, "failed_checks": ()})
        return result.model_copy(update={"stdout": _as_text(ended.stdout), "workbench": measured})
    return result
