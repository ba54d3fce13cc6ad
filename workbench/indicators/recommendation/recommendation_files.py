"""Files around a recommendation: choose the session, query a database, write tables and lock files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.indicators.recommendation.conclusion import Recommendation
from workbench.indicators.recommendation.pipeline_units import is_sql
from workbench.indicators.stacks import stack_sets
from workbench.indicators.stacks.stack_report import format_pylock
from workbench.indicators.stacks.stack_sets import Stack, StackSet
from workbench.indicators.store import sql_analysis, sql_queries
from workbench.indicators.store.archive import SESSION_FILE, Session, read_session
from workbench.indicators.store.sql_database import open_database
from workbench.indicators.tables import EXCLUDED, JUSTIFICATIONS, PROPOSALS, RECOMMENDATIONS

if TYPE_CHECKING:
    import polars as pl

MAX_SESSIONS = 1000


def choose_session(folders: Sequence[Path], session_id: str | None = None) -> Path:
    """Find the folder of a session."""
    by_path = {path: read_session(path) for folder in folders for path in _list_session_folders(folder)}
    if not by_path:
        raise InputError(
            "no session there", where=", ".join(map(str, folders)), found=f"no {SESSION_FILE}",
            do="workbench indicators run --stacks stacks.json --indicator sort",
        )  # fmt: skip
    matches = {
        path: session
        for path, session in by_path.items()
        if session_id is None or session.session_id.startswith(session_id)
    }
    if len(matches) == 1:
        return next(iter(matches))
    if not matches:
        session_ids = sorted(session.session_id for session in by_path.values())
        raise InputError("no such session", where="--session", found=(session_id or "")[:80], allowed=session_ids[:20])
    sessions = sorted(matches.values(), key=lambda session: session.created_at)
    raise InputError(
        "several sessions: choose one, they are never compared",
        where=", ".join(map(str, folders)),
        found=_format_sessions(sessions),
        allowed=[session.session_id for session in sessions[:20]],
        do=f"--session {sessions[-1].session_id}",
    )


def list_differences(base: Session, other: Session) -> list[str]:
    """How two sessions differ in what decides speed; empty if they measure the same on the same machine."""
    first, second = base.get_arm(base.baseline), other.get_arm(other.baseline)
    versions = [{case.label: case.indicator_version for case in session.cases} for session in (base, other)]
    shared = versions[0].keys() & versions[1].keys()
    changed = sorted(label for label in shared if versions[0][label] != versions[1][label])
    differences = {
        "the baseline's lock": first.stack_key != second.stack_key,
        "the machine": base.hardware.key != other.hardware.key,
        "threads": base.threads != other.threads,
        f"the version of {', '.join(changed)}": bool(changed),
        "cases": versions[0].keys() != versions[1].keys(),
    }
    return [aspect for aspect, differs in differences.items() if differs]


def _list_session_folders(folder: Path) -> Iterator[Path]:
    if (folder / SESSION_FILE).is_file():
        yield folder
        return
    inner = sorted({*folder.glob(f"*/{SESSION_FILE}"), *folder.glob(f"*/*/{SESSION_FILE}")})
    for path in inner[:MAX_SESSIONS]:
        yield path.parent


def _format_sessions(sessions: Sequence[Session]) -> str:
    first, texts = sessions[0], []
    for other in sessions[1:6]:
        differences = list_differences(first, other)
        clause = (
            f"differs from {first.session_id} in {', '.join(differences)}"
            if differences
            else f"measures the same as {first.session_id}"
        )
        texts.append(f"{other.session_id} {clause}")
    more = f"; and {len(sessions) - 6} more" if len(sessions) > 6 else ""
    return "; ".join(texts) + more


def find_stacks(folder: Path, stacks_file: Path | None) -> StackSet | None:
    """Read a session's solved stacks from its stacks.json or another file; null without any."""
    if stacks_file is not None:
        return stack_sets.read_stack_set(stacks_file)
    return stack_sets.read_stack_set(folder) if (folder / stack_sets.FILE_NAME).is_file() else None


def write_tables(recommendation: Recommendation, folder: Path) -> list[Path]:
    """Write the four tables of a recommendation into a folder."""
    pairs = [
        (RECOMMENDATIONS, recommendation.table),
        (EXCLUDED, recommendation.excluded),
        (JUSTIFICATIONS, recommendation.justifications),
    ]
    try:
        return [table.write(frame, folder) for table, frame in [*pairs, (PROPOSALS, recommendation.proposals)]]
    except OSError as error:
        raise ConfigError(
            "cannot write the tables", where=folder, found=error.strerror, do="choose --out DIR"
        ) from error  # fmt: skip


def write_requirements(recommendation: Recommendation, stacks: StackSet | None, path: Path) -> Path:
    """Write the recommended stack's lock as a requirements file with hashes."""
    return _write_text(path, select_recommended_stack(recommendation, stacks, "--requirements").lock)


def write_pylock(recommendation: Recommendation, stacks: StackSet | None, path: Path) -> Path:
    """Write the recommended stack as pylock.toml; the addresses of its files come from the index."""
    return _write_text(path, format_pylock(select_recommended_stack(recommendation, stacks, "--pylock")))


def write_next_stacks(recommendation: Recommendation, stacks: StackSet | None, path: Path) -> Path:
    """Write the session's baseline and the proposed stacks as a stacks file.

    An excluded baseline is part of it, too, as the link between the two sessions.
    """
    if stacks is None:
        raise _explain_missing_stacks("--next-stacks")
    keys = list(dict.fromkeys([recommendation.baseline_key, *recommendation.proposals["stack_key"]]))
    by_key = stacks.by_arm_key
    if missing := [key[:12] for key in keys if key not in by_key]:
        raise InputError(
            "a proposed stack is not in the stacks file", where="--next-stacks", found=missing, do="give --stacks"
        )
    locks = {by_key[key].key: by_key[key] for key in keys}
    chosen = stacks.model_copy(
        update={
            "stacks": tuple(locks.values()),
            "variations": tuple(variation for variation in stacks.variations if variation.key in keys),
        }
    )
    return _write_text(path, stack_sets.format_stack_set(chosen))


def select_recommended_stack(recommendation: Recommendation, stacks: StackSet | None, where: str) -> Stack:
    """Find the recommended stack with its lock."""
    if stacks is None:
        raise _explain_missing_stacks(where)
    if recommendation.key is not None and (solved_stack := stacks.by_arm_key.get(recommendation.key)):
        return solved_stack
    raise InputError(
        "the recommended stack is not in the stacks file", where=where, found=recommendation.answer.stack,
        allowed=[stack.name for stack in stacks.stacks][:20], do="give the --stacks FILE that was measured",
    )  # fmt: skip


def _explain_missing_stacks(where: str) -> InputError:
    return InputError(
        "no locks found", where=where, found=f"the session has no {stack_sets.FILE_NAME}", do="give --stacks FILE"
    )


def _write_text(path: Path, text: str) -> Path:
    try:
        return files.write_text(path, text)
    except OSError as error:
        raise ConfigError("cannot write the file", where=path, found=error.strerror) from error


def build_query_function(target: str, session_id: str) -> Callable[[str], pl.DataFrame]:
    """Build a function that runs named queries for one session, or SQL on the whole database."""
    database = open_database(target, create=False)

    def ask(name: str) -> pl.DataFrame:
        if is_sql(name):
            answer = sql_analysis.select_rows(database, name)
        else:
            query = sql_queries.QUERIES.get(name)
            of_session = query is not None and "session" in query.filters
            answer = sql_queries.run_query(
                database, name, sql_queries.Filters(session=session_id if of_session else None)
            )
        if answer.truncated:
            raise InputError("too many rows for a unit", found=name[:80], allowed=f"up to {sql_queries.MAX_ROWS:,}")
        return answer.frame

    return ask
