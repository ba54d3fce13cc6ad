"""Plan of a session, the order of its runs, and the document of each run."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_core import PydanticSerializationError

from workbench.core import redaction
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract.documents import DocumentError, Status, parse_document, validate_document
from workbench.indicators.contract.indicator import Case, Indicator, result
from workbench.indicators.measurement import machine_facts
from workbench.indicators.measurement.run_messages import RunEnd
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.store.archive import Arm, PlannedCase, Pressure, Result, RunDetails, Session

LEFT = "left"
"""How the fault of a run begins that left processes behind."""
MAX_TEXT = 64 << 10
"""Bytes kept of an output that is no document."""
_MAX_REASON = 400
BATCH = "process"
"""Stands in place of the image in Amun's specification: this backend uses none."""


@dataclass(frozen=True)
class Slot:
    """One run to make; `position` counts through the whole session."""

    position: int
    round: int
    case: str
    arm: str


def order_runs(session: Session) -> list[Slot]:
    """Return all runs of a session in order.

    In each round every arm runs every case once: the cases in random order, and the arms of a case consecutively, also
    in random order, so that compared runs are seconds apart. Each round has its own random numbers, derived from the
    session's seed. The design `blocks` runs one arm after the other, each with all its rounds; it exists to
    demonstrate its bias.

    An arm has no runs of a case that does not apply to it.
    """
    order = _order_in_blocks(session) if session.design == "blocks" else _order_in_rounds(session)
    skipped = {case.label: case.skipped for case in session.cases}
    applicable = [(number, case, arm) for number, case, arm in order if arm not in skipped[case]]
    return [Slot(position, *run) for position, run in enumerate(applicable)]


def count_max_rounds(session: Session) -> int:
    """The number of rounds after which a session ends in any case."""
    return max(session.looks)


def _order_in_rounds(session: Session) -> Iterator[tuple[int, str, str]]:
    """Runs as (round, case, arm), in random order within each round."""
    for number in range(count_max_rounds(session)):
        # Not seed + number: then seeds 1 and 2 would share rounds.
        draw = random.Random(f"{session.seed}:{number}")  # noqa: S311 - an order, no secret
        for case in draw.sample([case.label for case in session.cases], len(session.cases)):
            for arm in draw.sample([arm.name for arm in session.arms], len(session.arms)):
                yield number, case, arm


def _order_in_blocks(session: Session) -> Iterator[tuple[int, str, str]]:
    """Runs as (round, case, arm), one arm after the other."""
    for arm in session.arms:
        for case in session.cases:
            for number in range(count_max_rounds(session)):
                yield number, case.label, arm.name


def match_cases_to_session(
    session: Session, cases: Sequence[Case], *, error_type: type[WorkbenchError] = ConfigError
) -> dict[str, Case]:
    """The session's cases by label; refused where one is missing or its indicator is another version."""
    by_label = {case.label: case for case in cases}
    for planned in session.cases:
        if planned.label not in by_label:
            raise error_type("a case of the session is missing", where=planned.label, allowed=list(by_label) or "none")
        if (version := by_label[planned.label].version) != planned.indicator_version:
            raise error_type(
                "the indicator has changed since the session was planned",
                where=planned.label,
                found=f"version {version}",
                allowed=planned.indicator_version,
                do="use the indicators that planned it, or start a new session: versions are not compared",
            )
    return {planned.label: by_label[planned.label] for planned in session.cases}


class Undeclared(Indicator):
    """Stands for a script whose document names an undeclared indicator; nothing of it is compared."""

    value: float | None = result(unit="", optional=True)


@dataclass(frozen=True)
class _OutputCheck:
    """Status of a run with its reason, and its document (or its output as text)."""

    status: Status
    reason: str | None
    document: Any
    failed_checks: tuple[str, ...] = ()


def build_run_document(
    session: Session, slot: Slot, arm: Arm, case: Case, ended: RunEnd, before: Pressure, after: Pressure
) -> Result:
    """The document of a run, whatever its status."""
    output = _check_output(case, ended)
    isolation = dict(ended.isolation)
    faults = case.indicator.list_faults(output.document) if output.status == "ok" else ()
    if ended.left_behind:
        isolation["left behind"] = f"{ended.left_behind} process(es), killed"
        if not any(fault.startswith(LEFT) for fault in faults):
            faults = (f"{LEFT} {ended.left_behind} process(es) running when it ended", *faults)
    measured = RunDetails(
        session_id=session.session_id,
        arm=arm.name,
        case=slot.case,
        round=slot.round,
        position=slot.position,
        indicator=case.indicator.__name__,
        indicator_version=case.version,
        status=output.status,
        reason=output.reason,
        failed_checks=output.failed_checks,
        faults=faults,
        signal=ended.signal,
        duration_s=round(ended.duration_s, 6),
        cpu_s=ended.cpu_s,
        waited_s=ended.waited_s,
        threads=arm.threads or session.threads,
        cpus=session.cpus[: arm.threads] if arm.threads else session.cpus,
        hardware_key=session.hardware.key,
        stdout_bytes=ended.stdout_bytes,
        stdout_sha256=hashlib.sha256(ended.stdout).hexdigest(),
        before=before,
        after=after,
        isolation=isolation,
    )
    document = Result(
        stdout=output.document,
        stderr=redaction.redact_value(ended.stderr.decode("utf-8", errors="replace")),
        exit_code=ended.exit_code,
        script_sha256=case.script_sha256,
        usage=dict(ended.usage),
        start_datetime=ended.started_at,
        end_datetime=ended.ended_at,
        os_release=machine_facts.read_os_release(),
        runtime_environment=machine_facts.build_runtime_environment(session.hardware, arm.python),
        hwinfo=machine_facts.build_hwinfo(session.hardware),
        workbench=measured,
    )
    # Replace a document that cannot be written (JSON may contain lone surrogates) by its text.
    try:
        document.model_dump_json()
    except (PydanticSerializationError, UnicodeError):
        reason = "contains text that is not valid Unicode"
        measured = document.workbench.model_copy(update={"status": "not JSON", "reason": reason, "failed_checks": ()})
        return document.model_copy(update={"stdout": _decode_output(ended.stdout), "workbench": measured})
    return document


def _check_output(case: Case, ended: RunEnd) -> _OutputCheck:
    """Judge what a run printed; the end of its process takes precedence."""
    try:
        document = redaction.redact_value(parse_document(ended.stdout))
    except DocumentError as error:
        return _OutputCheck(*_classify_failure(ended, (error.status, error.reason)), _decode_output(ended.stdout))
    if ended.outcome != "exited":
        return _OutputCheck(*_classify_failure(ended, None), document)
    try:
        valid_document = validate_document(
            thoth_indicators.rename_document(document, case.indicator), case.indicator, case.parameters
        )
    except DocumentError as error:
        return _OutputCheck(error.status, redaction.redact_value(error.reason) + format_advice(case), document)
    return _OutputCheck("ok", None, document, valid_document.failed_checks)


def format_advice(case: Case) -> str:
    """How to declare an undeclared indicator; empty for declared ones."""
    advice = "; declare one (workbench indicators new NAME) and give it with --indicator"
    return advice if issubclass(case.indicator, Undeclared) else ""


def _classify_failure(ended: RunEnd, of_document: tuple[Status, str] | None) -> tuple[Status, str]:
    """Status and reason of a failed run; the end of the process takes precedence over its output."""
    if ended.outcome == "exited" and of_document is not None:
        return of_document[0], redaction.redact_value(of_document[1])[:_MAX_REASON]
    reason = ended.detail
    if ended.outcome in ("exit code", "killed", "out of memory") and (last := _last_line(ended.stderr)):
        reason = f"{reason}: {last}"
    status: Status = "killed" if ended.outcome == "stopped" or ended.outcome == "exited" else ended.outcome
    return status, redaction.redact_value(reason)[:_MAX_REASON]


def _last_line(stderr: bytes) -> str:
    lines = stderr[-4096:].decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip()[:200] if lines else ""


def _decode_output(stdout: bytes) -> str:
    """The output as text, cut to a limit; Amun, too, keeps output that is not JSON as text."""
    text: str = redaction.redact_value(stdout[:MAX_TEXT].decode("utf-8", errors="replace"))
    return text


def build_session_plan(
    session_id: str,
    config: SessionConfig,
    variants: Sequence[Variant],
    cases: Sequence[Case],
    *,
    notes: Sequence[str] = (),
    here: bool = True,
) -> Session:
    """Plan a session of these variants and cases; the first variant is the baseline.

    A case does not apply to a stack that lacks packages it needs; one that does not apply to the baseline is refused.
    `here` says whether runs are made on this machine, whose cores are noted then.
    """
    arms = tuple(variant.arm for variant in variants)
    if not cases:
        raise ConfigError("nothing to measure", where="--indicator", do="give one, such as --indicator sort")
    labels = [case.label for case in cases]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise ConfigError("the same case twice", where="--indicator", found=twice)
    threads = max(arm.threads or config.threads for arm in arms)
    run_cores, _ = machine_facts.assign_cores(threads)
    hardware = machine_facts.detect_hardware()
    notes = list(notes)
    if here and run_cores and len(run_cores) < threads:
        notes.append(f"{threads} threads share {len(run_cores)} core(s)")
    return Session(
        session_id=session_id,
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seed=secrets.randbelow(2**31) if config.seed is None else config.seed,
        arms=arms,
        baseline=arms[0].name,
        cases=tuple(_plan_case(case, arms, config.margin) for case in cases),
        looks=config.rounds,
        alpha=config.alpha,
        method="sequence",
        clock=config.clock,
        revision=config.revision,
        output=config.output,
        threads=config.threads,
        cpus=run_cores,
        timeout_s=config.timeout_s,
        memory_bytes=config.memory_limit_bytes(hardware.memory_bytes),
        hardware=hardware,
        host=machine_facts.read_host_facts(),
        design=config.design,
        notes=tuple(notes),
    )


def _plan_case(case: Case, arms: Sequence[Arm], margin: float | None) -> PlannedCase:
    """A case with its metrics, and the arms that it does not apply to; `margin` replaces that of every metric."""
    indicator = case.indicator
    skipped = {}
    for arm in arms:
        if missing := indicator.lacks(case.parameters, arm.packages):
            skipped[arm.name] = f"has no {', '.join(missing)}"
    if arms[0].name in skipped:
        raise ConfigError(
            "the baseline cannot run this case",
            where=case.label,
            found=f"{arms[0].name} {skipped[arms[0].name]}",
            do="choose another --baseline, or omit this indicator",
        )
    planned = PlannedCase.from_indicator(
        indicator, label=case.label, version=case.version, parameters=case.parameters, skipped=skipped
    )
    if margin is None:
        return planned
    metrics = tuple(metric.model_copy(update={"tolerance": margin}) for metric in planned.metrics)
    return planned.model_copy(update={"metrics": metrics})


def build_specification(session: Session, variant: Variant, case: Case, inspection: str) -> dict[str, Any]:
    """Amun's specification of one variant and case; `@workbench` holds what Amun has no field for."""
    packages = dict(sorted(variant.arm.packages.items()))
    version = variant.arm.python_minor
    locked = {
        name: {"version": f"=={number}", **({"hashes": list(variant.hashes[name])} if name in variant.hashes else {})}
        for name, number in packages.items()
    }
    files = {name: text for name, text in case.sources.items() if name != "script.py"}
    return {
        "base": BATCH,
        "identifier": inspection,
        "batch_size": max(session.looks),
        "script": case.sources["script.py"],
        "files": [{"path": name, "content": text} for name, text in files.items()],
        "environment": [{"name": name, "value": value} for name, value in case.environment.items()],
        "python": {
            "requirements": {
                "packages": {name: f"=={number}" for name, number in packages.items()},
                "dev-packages": {},
                "requires": {"python_version": version},
                "source": [],
            },
            "requirements_locked": {
                "_meta": {"pipfile-spec": 6, "requires": {"python_version": version}, "sources": []},
                "default": locked,
                "develop": {},
            },
        },
        "run": {
            "requests": {
                "cpu": str(variant.arm.threads or session.threads),
                "memory": f"{(session.memory_bytes or 0) >> 20}Mi",
            }
        },
        "@created": session.created_at,
        "@workbench": {
            "session_id": session.session_id,
            "arm": variant.arm.name,
            "stack": variant.arm.stack,
            "stack_key": variant.arm.stack_key,
            "case": case.label,
            "indicator": case.indicator.__name__,
            "indicator_version": case.version,
        },
    }
