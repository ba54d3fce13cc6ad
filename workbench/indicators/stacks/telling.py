"""Stacks in words: the table, the rejected points, the old report, the folders that others read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench import files, formats
from workbench.errors import ConfigError
from workbench.indicators.stacks.environments import Environment
from workbench.indicators.stacks.model import Stack, StackSet
from workbench.indicators.stacks.naming import labelled, varying
from workbench.indicators.stacks.planning import Plan
from workbench.indicators.stacks.pylock import pylock
from workbench.indicators.stacks.target import this_platform, this_python, uv_name

MOST_REASONS = 10
MOST_POINTS = 3
MOST_OTHERS = 4
MOST_CONTEXT = 200
"""Characters of a context in a command line; a longer one is the user's file."""
MOST_REASON = 240
"""Characters of a reason in the table; the file has all of it."""


def text(stacks: StackSet) -> str:
    """The set as a table with what was rejected and merged, and how to ask for it again."""
    lines = [_head(stacks), "", *_table(stacks)] if stacks.stacks else [_head(stacks)]
    if stacks.rejected:
        lines += ["", *_rejected(stacks)]
    merged = [stack for stack in stacks.stacks if len(stack.origin) > 1]
    if merged:
        lines += ["", *(f"merged: {'; '.join(stack.origin)}: one lock, {stack.name}" for stack in merged)]
    if stacks.notes:
        lines += ["", *(f"note: {note}" for note in stacks.notes)]
    return "\n".join([*lines, "", f"the same again, later: {again(stacks)}"])


def _head(stacks: StackSet) -> str:
    seed = "" if stacks.seed is None else f", seed {stacks.seed}"
    return (
        f"{_count(len(stacks.stacks), 'stack')} by {stacks.decision}{seed}, "
        f"for Python {stacks.python} on {stacks.platform}, solved by uv {stacks.uv_version}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _table(stacks: StackSet) -> list[str]:
    rows = [("stack", "packages", "download", "key", "point", "also differs in")]
    differ = varying(stacks.stacks)
    for stack in stacks.stacks:
        others = [labelled(stack, name) for name in differ if labelled(stack, name) not in stack.name]
        more = [f"and {len(others) - MOST_OTHERS} more"] if len(others) > MOST_OTHERS else []
        size = formats.size(stack.download_bytes) if stack.download_bytes is not None else "unknown"
        # A grid's points are named like its stacks; of days and bounds the reader wants to know which.
        point = stack.origin[0] if stack.origin and stacks.decision in ("dates", "bounds") else ""
        also = ", ".join(others[:MOST_OTHERS] + more)
        rows.append((stack.name, str(len(stack.packages)), size, stack.key[:12], point, also))
    used = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    return _columns([[row[place] for place in used] for row in rows])


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    right = {"packages", "download"}
    return [
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, rows[0], strict=True)
        ).rstrip()
        for row in rows
    ]


def _rejected(stacks: StackSet) -> list[str]:
    """Rejected points, those with the same reason together."""
    groups: dict[str, list[str]] = {}
    for one in stacks.rejected:
        groups.setdefault(_short(one.reason), []).append(one.point)
    lines = [f"rejected: {_count(len(stacks.rejected), 'point')}, reasons in full in the file"]
    for reason, points in list(groups.items())[:MOST_REASONS]:
        more = f"; and {len(points) - MOST_POINTS} more" if len(points) > MOST_POINTS else ""
        lines += [f"  {'; '.join(points[:MOST_POINTS])}{more}", f"    {reason}"]
    left = len(groups) - MOST_REASONS
    return [*lines, f"  and {_count(left, 'more reason')}"] if left > 0 else lines


def _short(reason: str) -> str:
    """The first clause of uv's explanation, without markers: what follows is concluded from it."""
    clause = re.sub(r"\{[^{}]*\}", "", reason).split(", we can conclude")[0]
    return clause if len(clause) <= MOST_REASON else clause[: MOST_REASON - 1] + "…"


def again(stacks: StackSet) -> str:
    """The command that gives the same stacks again, on any later day."""
    words = ["workbench", "indicators", "stacks", *(part for text in stacks.free for part in ("--free", text))]
    if stacks.requirements:
        words += ["--requirements", "FILE"]
    if stacks.decision != "grid":
        words += ["--decision", stacks.decision]
    names = {"first_day": "from", "last_day": "to", "max_download_bytes": "max-download"}
    for name, value in stacks.options.items():
        if value is not None and (name, value) not in (("step", "minor"), ("every", "quarter")):
            words += [f"--{names.get(name, name)}", str(value)]
    if stacks.seed is not None:
        words += ["--seed", str(stacks.seed)]
    if stacks.python != this_python():
        words += ["--python-version", stacks.python]
    if stacks.platform != this_platform() and (platform := uv_name(stacks.platform)):
        words += ["--platform", platform]
    if stacks.decision != "dates":
        words += ["--exclude-newer", (stacks.exclude_newer or "never").removesuffix("T00:00:00Z")]
    if stacks.context is not None:
        told = json.dumps(stacks.context, ensure_ascii=False)
        words += ["--context", told if len(told) <= MOST_CONTEXT else "FILE"]
    return shlex.join(words)


def plan_text(plan: Plan) -> str:
    """What would be solved: the candidates and the points, in their order."""
    lines = [f"{name}: {', '.join(map(str, versions))}" for name, versions in plan.choices.items()]
    points = plan.first_points()
    seed = "" if plan.seed is None else f", seed {plan.seed}"
    lines += ["", f"{len(points)} of {_count(plan.total, 'point')} by {plan.request.decision}{seed}:"]
    lines += [f"  {point.label}" for point in points]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join([*lines, "", "nothing was solved (--dry-run)"]).lstrip()


def plan_document(plan: Plan) -> dict[str, Any]:
    """The same as a JSON document."""
    return {
        "decision": plan.request.decision,
        "seed": plan.seed,
        "total": plan.total,
        "choices": {name: list(map(str, versions)) for name, versions in plan.choices.items()},
        "points": [point.label for point in plan.first_points()],
        "notes": list(plan.notes),
    }


def download_text(stacks: Sequence[Stack]) -> str:
    """What installing will download at most; less where uv's cache has it already, or stacks share a package."""
    files_bytes = {(one.name, one.version): one.download_bytes for stack in stacks for one in stack.packages}
    known = [size for size in files_bytes.values() if size is not None]
    unknown = len(files_bytes) - len(known)
    more = f", and {_count(unknown, 'package')} of unknown size" if unknown else ""
    return f"installing {_count(len(stacks), 'stack')}: download up to {formats.size(sum(known))}{more}"


def environments_text(environments: Sequence[Environment], stacks: Sequence[Stack]) -> str:
    """Where the environments are, and what making them took."""
    lines = []
    for made, stack in zip(environments, stacks, strict=True):
        took = f"made in {made.make_s:.2f} s, bytecode {made.compile_s:.2f} s" if made.made else "was there"
        lines.append(f"{stack.name}: {took}: {made.folder}")
    return "\n".join(lines)


def environment_documents(environments: Sequence[Environment], stacks: Sequence[Stack]) -> list[dict[str, Any]]:
    """The same as JSON documents."""
    return [
        {
            "stack": stack.name,
            "key": made.key,
            "folder": str(made.folder),
            "python": str(made.python),
            "made": made.made,
            "make_s": made.make_s,
            "compile_s": made.compile_s,
            "record_sha256": made.record_sha256,
        }
        for made, stack in zip(environments, stacks, strict=True)
    ]


def requirement_files(stacks: StackSet) -> str:
    """All locks in one text, each below a comment with its name."""
    return "\n".join(f"# {number}: {stack.name}\n{stack.lock}" for number, stack in enumerate(stacks.stacks))


def write_folders(stacks: StackSet, folder: str | Path) -> list[Path]:
    """A numbered folder a stack with requirements.txt and pylock.toml, as the old tool left its stacks.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    written = []
    for number, stack in enumerate(stacks.stacks):
        place = Path(folder) / str(number)
        try:
            files.write_text(place / "requirements.txt", stack.lock)
            files.write_text(place / "pylock.toml", pylock(stack))
        except OSError as error:
            raise ConfigError("cannot write the stacks", where=place, found=error.strerror) from error
        written.append(place)
    return written


def write_report(stacks: StackSet, places: Sequence[Path], path: str | Path) -> Path:
    """Write the report that the old tool wrote: how many points were skipped, each stack with where it went.

    `response` is the folder of --stack-output, else the stack's key.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    document = {
        "seed": stacks.seed,
        "skipped": len(stacks.rejected),
        "merged": stacks.merged,
        "responses": [
            {
                "response": str(places[number]) if places else stack.key,
                "product": {"name": stack.name, "key": stack.key, "packages": stack.versions},
            }
            for number, stack in enumerate(stacks.stacks)
        ],
        "rejected": [one.model_dump() for one in stacks.rejected],
    }
    try:
        return files.write_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError("cannot write the report", where=path, found=error.strerror) from error
