"""Which session is meant: exactly one, for figures of two sessions are never compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.errors import InputError
from workbench.indicators.archive import SESSION, Session, read_session

MOST_SESSIONS = 1000


def chosen(folders: Sequence[Path], wanted: str | None = None) -> Path:
    """The folder of the one session that is meant.

    Parameters
    ----------
    folders
        Folders of sessions, or folders that hold such.
    wanted
        A session's id, or how it begins.

    Raises
    ------
    InputError
        There is none, or several are left; it says in what they differ.
    """
    found = {path: read_session(path) for folder in folders for path in _below(folder)}
    if not found:
        raise InputError(
            "no session there", where=", ".join(map(str, folders)), found=f"no {SESSION}",
            do="workbench indicators run --stacks stacks.json --indicator sort",
        )  # fmt: skip
    left = {path: one for path, one in found.items() if wanted is None or one.session_id.startswith(wanted)}
    if len(left) == 1:
        return next(iter(left))
    if not left:
        known = sorted(one.session_id for one in found.values())
        raise InputError("no such session", where="--session", found=(wanted or "")[:80], allowed=known[:20])
    sessions = sorted(left.values(), key=lambda one: one.created_at)
    raise InputError(
        "several sessions, and figures of two are never compared",
        where=", ".join(map(str, folders)),
        found=_told(sessions),
        allowed=[one.session_id for one in sessions[:20]],
        do=f"--session {sessions[-1].session_id}",
    )


def differences(one: Session, other: Session) -> list[str]:
    """In what two sessions differ that decides what is fast; none: they asked the same on the same machine."""
    first, second = one.arm(one.baseline), other.arm(other.baseline)
    versions = [{case.label: case.indicator_version for case in session.cases} for session in (one, other)]
    shared = versions[0].keys() & versions[1].keys()
    changed = sorted(label for label in shared if versions[0][label] != versions[1][label])
    found = {
        "the baseline's lock": first.stack_key != second.stack_key,
        "the machine": one.hardware.key != other.hardware.key,
        "threads": one.threads != other.threads,
        f"the version of {', '.join(changed)}": bool(changed),
        "cases": versions[0].keys() != versions[1].keys(),
    }
    return [what for what, differs in found.items() if differs]


def _below(folder: Path) -> Iterator[Path]:
    if (folder / SESSION).is_file():
        yield folder
        return
    inner = sorted({*folder.glob(f"*/{SESSION}"), *folder.glob(f"*/*/{SESSION}")})
    for path in inner[:MOST_SESSIONS]:
        yield path.parent


def _told(sessions: Sequence[Session]) -> str:
    first, told = sessions[0], []
    for other in sessions[1:6]:
        found = differences(first, other)
        what = (
            f"differs from {first.session_id} in {', '.join(found)}" if found else f"asks what {first.session_id} asks"
        )
        told.append(f"{other.session_id} {what}")
    more = f"; and {len(sessions) - 6} more" if len(sessions) > 6 else ""
    return "; ".join(told) + more
