"""Recorder: runs the sessions of a recording, completes an unfinished one, formats plan and outcome."""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from workbench.console import terminal
from workbench.core import files, host, locks, signals
from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.formats import format_bytes
from workbench.speedup import tables
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import answers, query_session, recording_plan, session_log, session_process
from workbench.speedup.recording.answers import AnswerStore
from workbench.speedup.recording.recording_plan import GOOD_VERDICTS, MAX_OTHER_LOAD, Recording, Session
from workbench.speedup.recording.session_process import RecordingProgress

WORK_FOLDER = ".session"
QUERIES_FILE = "queries.sql"
# CPU use before a session above which its times are unreliable.
MAX_BUSY_SHARE = 0.3
SAMPLE_S = 2.0
Say = Callable[[str], None]
MAX_REASONS = 30


@dataclass(frozen=True)
class RecordingOutcome:
    """The recording, and the failures in it (empty for a good one)."""

    recording: Recording
    reasons: list[str] = field(default_factory=list)


def record_suite(
    config: RecordConfig, *, say: Say, find_limit_s: Callable[[int], float] | None = None
) -> RecordingOutcome:
    """Record a suite on all sides, or the missing sessions of an earlier recording.

    `config`: What to record; the settings must equal those of a recording in `out`, except for more sessions.
    `find_limit_s`: Time of the next session, by how many are left with it; then it stops where it is. Null: no limit.

    Returns: The complete recording; reasons name failed sessions and queries and differing answers.
    """
    _check_output_folder(config)
    prepared = recording_plan.prepare_recording(config, say=say)
    config.out.mkdir(parents=True, exist_ok=True)
    with (
        signals.interrupt_on_termination(),
        locks.lock_exclusively(config.out, "another process records into this folder"),
    ):
        recording = _open_or_create_recording(prepared)
        try:
            missing = list_missing_sessions(recording)
            n_queries, n_all = len(recording.suite.queries), len(recording.sides) * recording.n_sessions
            with terminal.open_status() as status:
                progress = RecordingProgress(status, len(missing) * recording.n_passes * n_queries, n_queries)
                for place, (label, number) in enumerate(missing, n_all - len(missing) + 1):
                    progress.start_session(label, number, f"session {place} of {n_all}")
                    limit_s = find_limit_s(n_all - place + 1) if find_limit_s else None
                    session = _record_session(prepared, recording, label, number, progress, limit_s)
                    if session.status == "failed":
                        session_end = f"failed: {session.error}"
                    else:
                        failed = f", {session.n_failed} executions failed" if session.n_failed else ""
                        session_end = f"done in {session.duration_s:.0f} s{failed}"
                    progress.end_session(session_end)
                    for warning in session.warnings:
                        progress.say(f"warning: {warning}")
                    succeeded = any(entry.label == label and entry.status == "ok" for entry in recording.sessions)
                    if not succeeded:
                        raise RunFailedError(
                            "the first session of a side failed", where=f"{label} {number}", found=session.error
                        )
        finally:
            shutil.rmtree(config.out / WORK_FOLDER, ignore_errors=True)
        return conclude_recording(recording)


def _check_output_folder(config: RecordConfig) -> None:
    """Require an empty folder, or one that holds a recording to complete."""
    out = config.out
    if out.exists() and not out.is_dir():
        raise ConfigError("not a folder", where="--out", found=str(out))
    others = (
        [path.name for path in out.iterdir() if path.name not in (WORK_FOLDER, locks.LOCK_FILE)] if out.is_dir() else []
    )
    if not others:
        return
    if config.fresh:
        raise ConfigError(
            "the folder is not empty", where="--out", found=str(out), do="give an empty one, or omit --fresh"
        )
    if recording_plan.JOURNAL not in others:
        do = "give an empty folder, or that of a recording to complete"
        raise ConfigError("the folder holds other files", where="--out", found=sorted(others)[:5], do=do)


def _open_or_create_recording(prepared: recording_plan.RecordingPlan) -> Recording:
    """The recording in the folder, or a new one; the work folder of a killed process is removed."""
    out = prepared.config.out.absolute()
    shutil.rmtree(out / WORK_FOLDER, ignore_errors=True)
    requested = prepared.build_recording()
    if not (out / recording_plan.JOURNAL).exists():
        files.write_text(out / QUERIES_FILE, prepared.suite.format_sql())
        requested.write()
        return requested
    recording = recording_plan.load_recording(out)
    if differences := recording_plan.list_differences(recording, requested):
        do = "use the settings of the existing recording, or record into another folder"
        raise ConfigError(
            "the recording in this folder has different settings", where="--out", found=differences, do=do
        )
    recording.n_sessions = max(recording.n_sessions, requested.n_sessions)
    return recording


def list_missing_sessions(recording: Recording) -> list[tuple[str, int]]:
    """Sides and numbers of the sessions that have not run, in their order."""
    good_keys = {(session.label, session.session) for session in recording.sessions if session.status == "ok"}
    order = recording_plan.iterate_sessions(recording.labels, recording.seed, recording.n_sessions)
    return [key for key in order if key not in good_keys]


def _record_session(
    prepared: recording_plan.RecordingPlan,
    recording: Recording,
    label: str,
    number: int,
    progress: RecordingProgress,
    limit_s: float | None,
) -> Session:
    """Run one session and add it to the journal; of a failed one only the error is kept."""
    name = answers.session_file_stem(label, number)
    folder = recording.folder / WORK_FOLDER / name
    folder.mkdir(parents=True)
    done_before = progress.done
    load, busy = get_load_per_core(), measure_busy_share()
    started_at, started = datetime.now(UTC), time.monotonic()

    with tempfile.TemporaryDirectory(prefix="workbench-spark-", ignore_cleanup_errors=True) as scratch:
        plan = prepared.build_session_plan(label, number, folder=folder, scratch=Path(scratch))
        plan.stop_after_s = limit_s
        config = prepared.config
        ended = session_process.run_session(
            plan,
            timeout_s=config.session_timeout_s,
            on_execution=progress.note_execution,
            local=config.local,
            spark=prepared.find_side(label).spark,
        )
        # Warn if the machine was busy before a session.
        # The load average still includes the previous session; the sample does not.
        if busy <= MAX_BUSY_SHARE:
            warnings = []
        else:
            detail = "" if load is None else f", load {load:.2f} per core"
            warnings = [
                f"the machine was busy before the session: {100 * busy:.0f} % of its CPU in use{detail}"
                f" (limit {100 * MAX_BUSY_SHARE:.0f} %)"
            ]
        session = Session(
            label=label,
            session=number,
            status="failed",
            log=None,
            n_passes=len(ended.executions) // len(recording.suite.queries),
            n_failed=sum(row["status"] == "failed" for row in ended.executions),
            started_at=started_at,
            duration_s=round(time.monotonic() - started, 3),
            load_per_core=load,
            busy_share=busy,
            warnings=warnings,
            error=ended.error,
        )
        if ended.facts is not None:
            _store_session(recording, plan, ended, session, _build_stand_ins(prepared, plan, ended.facts, scratch))
    progress.done = done_before + len(recording.suite.queries) * recording.n_passes
    others = [other for other in recording.sessions if (other.label, other.session) != (label, number)]
    recording.sessions = [*others, session]
    recording.write()
    shutil.rmtree(folder, ignore_errors=True)
    return session


def get_load_per_core() -> float | None:
    """Load average of the last minute over the cores; null if the system has none."""
    load = host.read_load_1m()
    return None if load is None else round(load / host.count_cores(), 3)


def measure_busy_share() -> float:
    """Share of the CPU in use by other processes, over two seconds."""
    import psutil

    return round(float(psutil.cpu_percent(interval=SAMPLE_S)) / 100, 3)


def _build_stand_ins(
    prepared: recording_plan.RecordingPlan, plan: query_session.SessionPlan, facts: dict[str, Any], scratch: str
) -> dict[str, str] | None:
    """Map paths of this machine to the neutral ones that replace them in the log; null if it is not scrubbed."""
    if not prepared.config.scrub:
        return None
    jars = {str(jar): jar.name for jar in prepared.jars.values()}
    stand_ins = session_log.map_machine_paths(data=prepared.data.place, work=plan.folder, jars=jars)
    return stand_ins | {scratch: "/data/scratch", str(facts["java_home"]): "/data/java"}


def _store_session(
    recording: Recording,
    plan: query_session.SessionPlan,
    ended: session_process.SessionEnd,
    session: Session,
    stand_ins: dict[str, str] | None,
) -> None:
    """Store log, answers and executions of a complete session, and mark it as good."""
    folder, name = Path(plan.folder), answers.session_file_stem(session.label, session.session)
    log = recording.folder / "logs" / f"{name}.zstd"
    findings = session_log.write_session_log(
        session_log.find_session_log(folder / query_session.EVENTS), log, stand_ins=stand_ins
    )
    session.warnings += [f"the log still has traces of this machine: {finding}" for finding in findings]
    with (folder / query_session.ANSWERS).open("rb") as lines:
        AnswerStore(recording.folder / "answers").add_session(name, lines)
    if recording.power_run and ended.facts is not None:
        files.write_text(recording.folder / "power" / f"{name}.csv", format_power_times(ended.executions, ended.facts))
    rows = [{"label": session.label, "session": session.session, **row} for row in ended.executions]
    if stand_ins is not None:
        for row in rows:
            row["error"] = row["error"] and session_log.scrub_line(row["error"], stand_ins)
    executions = recording.read_executions()
    tables.RECORDED_EXECUTIONS.write(pl.concat([executions, tables.RECORDED_EXECUTIONS.frame(rows)]), recording.folder)
    session.status, session.error = "ok", None
    session.log, session.log_sha256 = f"logs/{log.name}", files.hash_file(log)
    if ended.facts is not None:
        session.spark_version, session.java_version = ended.facts["spark_version"], ended.facts["java_version"]
        load = ended.facts.get("load") or {}
        session.other_cpu_share, session.steal_share = load.get("other_cpu_share"), load.get("steal_share")
        shares = {"other programs": session.other_cpu_share, "other virtual machines": session.steal_share}
        other_load_warnings = [
            f"{source} used the CPU during the session: {100 * share:.0f} % of it (limit {100 * MAX_OTHER_LOAD:.0f} %)"
            for source, share in shares.items()
            if share is not None and share > MAX_OTHER_LOAD
        ]
        session.warnings += other_load_warnings


def format_power_times(executions: Sequence[dict[str, Any]], facts: dict[str, Any]) -> str:
    """Times of a Power Run as the NDS harness writes them: milliseconds, start and end in epoch seconds."""
    begin, end = int(facts["queries_started_at"]), int(facts["queries_ended_at"])
    views = {f"CreateTempView {name}": duration_s for name, duration_s in facts["views_s"].items()}
    queries = {row["query"]: row["duration_s"] for row in executions}
    times = [(name, int(duration_s * 1000)) for name, duration_s in (views | queries).items()]
    total_ms = int((facts["queries_ended_at"] - facts["queries_started_at"] + sum(views.values())) * 1000)
    times += [("Power Start Time", begin), ("Power End Time", end), ("Power Test Time", (end - begin) * 1000)]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["application_id", "query", "time/milliseconds"])
    writer.writerows((facts["app_id"], name, value) for name, value in [*times, ("Total Time", total_ms)])
    return text.getvalue()


def conclude_recording(recording: Recording) -> RecordingOutcome:
    """Compare the answers, exclude the queries that do not count, and collect all failures."""
    verdicts = answers.build_answer_verdicts(
        recording, AnswerStore(recording.folder / "answers"), recording.read_executions()
    )
    tables.ANSWERS.write(verdicts, recording.folder)
    recording.excluded = answers.list_excluded_queries(verdicts)
    recording.write()
    reasons = [
        f"{session.label} session {session.session}: {session.error}"
        for session in recording.sessions
        if session.status == "failed"
    ]
    for label, queries in recording.excluded.items():
        reasons += [f"{label} {query}: {reason}" for query, reason in queries.items()]
    return RecordingOutcome(recording, reasons)


def format_plan(config: RecordConfig) -> str:
    """The plan as text: suite, tables, sides with their settings, order of sessions. Nothing is downloaded."""
    prepared = recording_plan.prepare_recording(config, say=lambda _: None, dry=True)
    scale = f", scale {prepared.data.scale:g}" if prepared.data.scale else ""
    lines = [
        f"{len(prepared.suite.queries)} queries of {prepared.suite.name} on {prepared.data.source}{scale}",
        f"{_count(config.n_sessions, 'session')} x {_count(config.n_passes, 'pass')} per side, "
        f"master {config.master}, seed {config.seed}",
        *(f"  {key}={value}" for key, value in recording_plan.hide_secret_settings(prepared.shared).items()),
    ]
    for side in prepared.sides:
        settings = recording_plan.hide_secret_settings(prepared.build_side_settings(side))
        jar = f" with {side.artifact.coordinate}" if side.artifact else ""
        jar = f" on Spark {side.line_beside}{jar}" if side.line_beside else jar
        lines += [
            f"side {side.label}: {side.engine}{jar}",
            *(f"  {key}={value}" for key, value in settings.items()),
        ]
    order = recording_plan.iterate_sessions([side.label for side in prepared.sides], config.seed, config.n_sessions)
    lines.append("order: " + ", ".join(f"{label} {number}" for label, number in order))
    return "\n".join(lines)


def format_outcome(outcome: RecordingOutcome) -> str:
    """The outcome as text: sessions, times of the sides, warnings, failures, and the path."""
    recording = outcome.recording
    log_paths = [path for _, _, path in recording.iterate_logs()]
    facts = list((recording.folder / recording_plan.FACTS_FOLDER).glob("*"))
    sizes = {
        "logs": sum(path.stat().st_size for path in log_paths),
        "facts": sum(path.stat().st_size for path in facts),
    }
    lines = [
        f"{_count(len(recording.list_good_sessions()), 'session')} x {_count(recording.n_passes, 'pass')} of "
        f"{len(recording.suite.queries)} queries, "
        + " and ".join(f"{name} of {format_bytes(size)}" for name, size in sizes.items() if size)
    ]
    for row in _sum_by_side(outcome).iter_rows(named=True):
        times = f"{row['duration_s']:.2f} s for {row['n_queries']} queries (sum of their median warm times)"
        lines.append(f"  {row['label']}: {times}")
    warnings = sorted({warning.split(":")[0] for session in recording.sessions for warning in session.warnings})
    lines += [f"warning: {text} (see {recording.folder / 'recording.json'})" for text in warnings]
    lines += [f"failed: {reason}" for reason in outcome.reasons[:MAX_REASONS]]
    if len(outcome.reasons) > MAX_REASONS:
        lines.append(f"failed: and {len(outcome.reasons) - MAX_REASONS} more")
    lines += _format_answers(recording)
    if recording.power_run:
        lines.append(f"times of the Power Run: {recording.folder / 'power'}")
    return "\n".join([*lines, str(recording.folder / "recording.json")])


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}{'es' if noun.endswith('s') else 's'}"


def _format_answers(recording: Recording) -> list[str]:
    """Lines that tell how many answers equal the reference, and how many are empty and prove little."""
    verdicts = tables.ANSWERS.read(recording.folder)
    others = verdicts.filter(pl.col("label") != recording.labels[0])
    if not others.height:
        return []
    n_good = others.filter(pl.col("verdict").is_in(GOOD_VERDICTS)).height
    n_ties = others.filter(pl.col("verdict") == "equal up to ties at the limit").height
    n_empty = verdicts.filter(pl.col("label") == recording.labels[0], pl.col("n_rows") == 0).height
    parts = [
        "all answers equal those of the first side"
        if n_good == others.height
        else f"{n_good} of {others.height} answers equal those of the first side"
    ]
    parts += [f"{n_ties} of them up to ties at a limit"] if n_ties else []
    if n_empty:
        parts.append("one answer is empty" if n_empty == 1 else f"{n_empty} answers are empty")
    return ["; ".join(parts)]


def _sum_by_side(outcome: RecordingOutcome) -> pl.DataFrame:
    """Sum of the queries' median warm seconds for each side, over queries that count on all sides."""
    recording = outcome.recording
    is_good = pl.col("status").eq("ok") & ~pl.col("query").is_in(list(recording.list_bad_queries()))
    warm = recording.read_executions().filter(is_good & ((pl.col("pass") > 1) | pl.lit(recording.n_passes == 1)))
    medians = warm.group_by("label", "query").agg(pl.col("duration_s").median(), n=pl.len())
    return (
        medians.group_by("label")
        .agg(pl.col("duration_s").sum(), n_queries=pl.len())
        .sort(pl.col("label").replace_strict({name: place for place, name in enumerate(recording.labels)}))
    )
