"""Runs the sessions of a recording, one after another; whole sessions are kept, what is missing can be run later."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from workbench import files, holding, host
from workbench.errors import ConfigError, RunFailedError
from workbench.speedup.recording import child, journal, logfile, plan, scrub, session, stopping, tables, verdicts
from workbench.speedup.recording.config import RecordConfig
from workbench.speedup.recording.journal import Recording, Session
from workbench.speedup.recording.progress import Clock, Watcher, watcher
from workbench.speedup.recording.store import Store

WORK = ".session"
QUERIES = "queries.sql"
# A machine that is busier than this before a session starts spoils its times.
MAX_BUSY_SHARE = 0.3
SAMPLE_S = 2.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What was recorded, and why it is not all good (empty when it is)."""

    recording: Recording
    reasons: list[str] = field(default_factory=list)


def record(config: RecordConfig, *, say: Say) -> Outcome:
    """Record a suite on all sides, or what is missing of it.

    Parameters
    ----------
    config
        What to record; settings must be those of the recording that `out` holds, but sessions may be more.
    say
        Told what is done before the sessions.

    Returns
    -------
    Outcome
        The recording, complete; reasons name sessions and queries that failed and answers that differ.

    Raises
    ------
    ConfigError
        The folder holds something else, or a recording with other settings (each difference is named).
    RunFailedError
        A side's first session died: its others would, too.
    KeyboardInterrupt
        Ctrl-C or SIGTERM; no process is left, and whole sessions are kept.
    """
    _check_folder(config)
    prepared = plan.prepare(config, say=say)
    config.out.mkdir(parents=True, exist_ok=True)
    with stopping.termination_as_interrupt(), holding.alone(config.out, "another process records into this folder"):
        recording = _begun(prepared)
        try:
            _run_missing(prepared, recording)
        finally:
            shutil.rmtree(config.out / WORK, ignore_errors=True)
        return conclude(recording)


def _check_folder(config: RecordConfig) -> None:
    """Into an empty folder, or one that holds a recording to go on with."""
    out = config.out
    if out.exists() and not out.is_dir():
        raise ConfigError("not a folder", where="--out", found=str(out))
    others = [path.name for path in out.iterdir() if path.name not in (WORK, holding.LOCK)] if out.is_dir() else []
    if not others:
        return
    if config.fresh:
        raise ConfigError(
            "the folder is not empty", where="--out", found=str(out), do="name an empty one, or omit --fresh"
        )
    if journal.JOURNAL not in others:
        do = "name an empty folder, or that of a recording to go on with"
        raise ConfigError("the folder holds something else", where="--out", found=sorted(others)[:5], do=do)


def _begun(prepared: plan.Prepared) -> Recording:
    """The recording in the folder, or a new one; a work folder of one that was killed is put away."""
    out = prepared.config.out.absolute()
    shutil.rmtree(out / WORK, ignore_errors=True)
    now = prepared.recording()
    if not (out / journal.JOURNAL).exists():
        files.write_text(out / QUERIES, prepared.suite.sql())
        now.save()
        return now
    recording = journal.load(out)
    if found := plan.differences(recording, now):
        do = "give the settings of the first time, or record into another folder"
        raise ConfigError("the recording in this folder has other settings", where="--out", found=found, do=do)
    recording.n_sessions = max(recording.n_sessions, now.n_sessions)
    return recording


def missing_sessions(recording: Recording) -> list[tuple[str, int]]:
    """Sides and numbers of the sessions that are still to be run, in their order."""
    done = {(one.label, one.session) for one in recording.sessions if one.status == "ok"}
    order = plan.sequence(recording.labels, recording.seed, recording.n_sessions)
    return [one for one in order if one not in done]


def _run_missing(prepared: plan.Prepared, recording: Recording) -> None:
    missing = missing_sessions(recording)
    n_queries, n_all = len(recording.suite.queries), len(recording.sides) * recording.n_sessions
    clock = Clock(len(missing) * recording.n_passes * n_queries, n_queries)
    with watcher(clock) as watch:
        for place, (label, number) in enumerate(missing, n_all - len(missing) + 1):
            watch.started(label, number, f"session {place} of {n_all}")
            done = _one(prepared, recording, label, number, watch, clock)
            watch.ended(_told(done))
            for warning in done.warnings:
                watch.say(f"warning: {warning}")
            succeeded = any(one.label == label and one.status == "ok" for one in recording.sessions)
            if not succeeded:
                raise RunFailedError(
                    "the session died, and no other of its side has lived", where=f"{label} {number}", found=done.error
                )


def _told(done: Session) -> str:
    if done.status == "failed":
        return f"failed: {done.error}"
    failed = f", {done.n_failed} executions failed" if done.n_failed else ""
    return f"done in {done.duration_s:.0f} s{failed}"


def _one(
    prepared: plan.Prepared, recording: Recording, label: str, number: int, watch: Watcher, clock: Clock
) -> Session:
    """Run one session and note it; nothing of one that failed is kept but its reason."""
    name = verdicts.session_name(label, number)
    folder = recording.folder / WORK / name
    folder.mkdir(parents=True)
    done_before = clock.done
    load, busy = load_per_core(), busy_share()
    started_at, started = datetime.now(UTC), time.monotonic()

    def told(row: dict[str, Any]) -> None:
        clock.done += 1
        watch.executed(row)

    with tempfile.TemporaryDirectory(prefix="workbench-spark-", ignore_cleanup_errors=True) as scratch:
        asked = prepared.session(label, number, folder=folder, scratch=Path(scratch))
        config = prepared.config
        ended = child.run(asked, timeout_s=config.session_timeout_s, told=told, local=config.local)
        done = Session(
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
            warnings=_load_warnings(load, busy),
            error=ended.error,
        )
        if ended.facts is not None:
            _keep(recording, asked, ended, done, _stand_ins(prepared, asked, ended.facts, scratch))
    clock.done = done_before + len(recording.suite.queries) * recording.n_passes
    others = [one for one in recording.sessions if (one.label, one.session) != (label, number)]
    recording.sessions = [*others, done]
    recording.save()
    shutil.rmtree(folder, ignore_errors=True)
    return done


def load_per_core() -> float | None:
    """Load average of the last minute over the cores; null where the system keeps none."""
    load = host.load_1m()
    return None if load is None else round(load / host.cores(), 3)


def busy_share() -> float:
    """Share of the processors' time that is in use just now, over two seconds in which nothing of ours runs."""
    import psutil

    return round(float(psutil.cpu_percent(interval=SAMPLE_S)) / 100, 3)


def _load_warnings(load: float | None, busy: float) -> list[str]:
    # The load average still holds our own last session, the sample does not.
    if busy <= MAX_BUSY_SHARE:
        return []
    said = "" if load is None else f", load {load:.2f} per core"
    return [f"the machine was busy before the session: {busy:.0%} of its processors{said}; up to 30% is quiet"]


def _stand_ins(
    prepared: plan.Prepared, asked: session.Plan, facts: dict[str, Any], scratch: str
) -> dict[str, str] | None:
    if not prepared.config.scrub:
        return None
    jars = {str(jar): jar.name for jar in prepared.jars.values()}
    found = scrub.places(data=prepared.data.place, work=asked.folder, jars=jars)
    return found | {scratch: "/data/scratch", str(facts["java_home"]): "/data/java"}


def _keep(
    recording: Recording, asked: session.Plan, ended: child.Ended, done: Session, stand_ins: dict[str, str] | None
) -> None:
    """The log, the answers and the executions of a session that came to its end; then it counts."""
    folder, name = Path(asked.folder), verdicts.session_name(done.label, done.session)
    log = recording.folder / "logs" / f"{name}.zstd"
    left = logfile.keep(logfile.find(folder / session.EVENTS), log, stand_ins=stand_ins)
    done.warnings += [f"the log still tells about this machine: {finding}" for finding in left]
    with (folder / session.ANSWERS).open("rb") as lines:
        Store(recording.folder / "answers").put(name, lines)
    rows = [{"label": done.label, "session": done.session, **row} for row in ended.executions]
    if stand_ins is not None:
        for row in rows:
            row["error"] = row["error"] and scrub.scrub(row["error"], stand_ins)
    kept = recording.executions()
    tables.EXECUTIONS.write(pl.concat([kept, tables.EXECUTIONS.frame(rows)]), recording.folder)
    done.status, done.error = "ok", None
    done.log, done.log_sha256 = f"logs/{log.name}", files.sha256(log)
    if ended.facts is not None:
        done.spark_version, done.java_version = ended.facts["spark_version"], ended.facts["java_version"]


def conclude(recording: Recording) -> Outcome:
    """Compare the answers, note what does not count, and say what is not good."""
    judged = verdicts.judge(recording, Store(recording.folder / "answers"), recording.executions())
    tables.ANSWERS.write(judged, recording.folder)
    recording.excluded = verdicts.excluded(judged)
    recording.save()
    reasons = [
        f"{one.label} session {one.session}: {one.error}" for one in recording.sessions if one.status == "failed"
    ]
    for label, queries in recording.excluded.items():
        reasons += [f"{label} {query}: {why}" for query, why in queries.items()]
    return Outcome(recording, reasons)
