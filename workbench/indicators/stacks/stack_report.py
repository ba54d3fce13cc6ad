"""Stacks as text and files: table, rejected points, requirement folders, pylock.toml."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.console.tables import format_table
from workbench.core import files, formats
from workbench.core.errors import ConfigError, InputError, refuse_os_errors
from workbench.core.formats import cut_text
from workbench.core.redaction import strip_user_info
from workbench.indicators.stacks.environments import Environment
from workbench.indicators.stacks.package_index import (
    PackageIndex,
    Wheel,
    build_target,
    find_uv_platform,
    format_time,
    this_platform,
    this_python_version,
)
from workbench.indicators.stacks.stack_sets import Package, Stack, StackSet, label_package, list_varying_packages
from workbench.indicators.stacks.stack_solver import StackPlan
from workbench.indicators.stacks.uv_tool import Sources, load_sources

MAX_REASONS = 10
MAX_SHOWN_POINTS = 3
MAX_OTHERS = 4
MAX_CONTEXT = 200
"""Maximum length of a context on a command line; a longer one is a file of the user."""
MAX_REASON = 240
"""Maximum length of a reason in the table; the file has the full text."""


def format_pylock(stack: Stack, sources: Sources | None = None) -> str:
    """Text of a pylock.toml that installs exactly the files of a stack's lock."""
    index = open_index(stack, sources)
    index.prefetch_pages(stack.versions)
    minor = ".".join(stack.python.split(".")[:2])
    parts = [
        'lock-version = "1.0"\ncreated-by = "accelerated-workbench"\n' + f'requires-python = "=={minor}.*"\n',
        *(_format_package(package, _select_files(package, index, stack)) for package in stack.packages),
    ]
    return "\n".join(parts)


def open_index(stack: Stack, sources: Sources | None = None) -> PackageIndex:
    """Index for a stack's Python and platform."""
    uv_platform = None if stack.platform == this_platform() else find_uv_platform(stack.platform)
    return PackageIndex(sources or load_sources(), build_target(stack.python, uv_platform))


def _select_files(package: Package, index: PackageIndex, stack: Stack) -> list[Wheel]:
    """The files on the index that the lock of a package has, by name."""
    wheels = [
        wheel
        for wheel in index.list_files(package.name, package.version)
        if wheel.sha256 and f"sha256:{wheel.sha256}" in package.hashes
    ]
    if not wheels:
        raise InputError(
            "the index has no file for a package of the lock",
            where=stack.name,
            found=f"{package.name} {package.version}",
            do="set UV_DEFAULT_INDEX to the index used for solving",
        )
    return sorted(wheels, key=lambda wheel: wheel.name)


def _format_package(package: Package, wheels: list[Wheel]) -> str:
    lines = [
        "[[packages]]",
        f"name = {_quote_text(package.name)}",
        f"version = {_quote_text(package.version)}",
        "wheels = [",
        *(f"    {_format_wheel(wheel)}," for wheel in wheels),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _format_wheel(wheel: Wheel) -> str:
    facts = [f"name = {_quote_text(wheel.name)}", f"url = {_quote_text(strip_user_info(wheel.url))}"]
    if wheel.uploaded is not None:
        facts.append(f"upload-time = {format_time(wheel.uploaded)}")
    if wheel.size_bytes is not None:
        facts.append(f"size = {wheel.size_bytes}")
    facts.append(f"hashes = {{ sha256 = {_quote_text(wheel.sha256 or '')} }}")
    return "{ " + ", ".join(facts) + " }"


def _quote_text(text: str) -> str:
    # JSON strings are valid TOML strings, except for DEL, which TOML requires to be escaped.
    return re.sub("\x7f", r"\\u007f", json.dumps(text))


def format_stacks(stacks: StackSet) -> str:
    """Table of a set with rejected and merged points, and the command to repeat it."""
    lines = [_format_head(stacks), "", *_format_table(stacks)] if stacks.stacks else [_format_head(stacks)]
    if stacks.rejected:
        lines += ["", *_format_rejections(stacks)]
    merged = [stack for stack in stacks.stacks if len(stack.origin) > 1]
    if merged:
        lines += ["", *(f"merged: {'; '.join(stack.origin)}: one lock, {stack.name}" for stack in merged)]
    if stacks.variations:
        # Arms of a matrix with what they are made of: Python, and hash, size and index of the packages that vary.
        by_key = {stack.key: stack for stack in stacks.stacks}
        rows = [("arm", "Python", "threads", "variables", "lock")]
        for variation in stacks.variations:
            stack = by_key.get(variation.stack or "")
            variables = " ".join(f"{name}={value}" for name, value in variation.variables.items())
            python, lock = (stack.python, stack.key[:12]) if stack else ("its own", "none: an existing environment")
            rows.append((variation.name, python, str(variation.threads or "session's"), variables or "-", lock))
        lines += ["", *[*_align_columns(rows), "", *_format_files(stacks)]]
    yanked = [
        f"{stack.name}: {package.name} {package.version}"
        for stack in stacks.stacks
        for package in stack.packages
        if package.yanked
    ]
    if yanked:
        lines += ["", *(f"yanked from its index: {text}" for text in yanked)]
    if stacks.notes:
        lines += ["", *(f"note: {note}" for note in stacks.notes)]
    if stacks.variations:
        return "\n".join(lines)
    return "\n".join([*lines, "", f"to repeat: {format_repeat_command(stacks)}"])


def _format_files(stacks: StackSet) -> list[str]:
    """Hash, size and index of each package whose files differ between the stacks."""
    rows = [("package", "version", "index", "size", "yanked", "sha256")]
    names = sorted({package.name for stack in stacks.stacks for package in stack.packages})
    for name in names:
        packages = [package for stack in stacks.stacks for package in stack.packages if package.name == name]
        by_file = {(package.version, package.hashes, package.index): package for package in packages}
        if len(by_file) < 2 and len(stacks.stacks) > 1:
            continue
        for package in by_file.values():
            size = "unknown" if package.download_bytes is None else formats.format_bytes(package.download_bytes)
            yanked_text = {None: "unknown", True: "yes", False: "no"}[package.yanked]
            more = f" and {len(package.hashes) - 1} more" if len(package.hashes) > 1 else ""
            rows.append(
                (
                    name,
                    package.version,
                    package.index or "configured",
                    size,
                    yanked_text,
                    package.hashes[0][7:19] + more,
                )
            )
    return _align_columns(rows) if len(rows) > 1 else []


def _format_head(stacks: StackSet) -> str:
    seed = "" if stacks.seed is None else f", seed {stacks.seed}"
    if stacks.variations:
        pythons = ", ".join(dict.fromkeys(stack.python for stack in stacks.stacks)) or "existing environments"
        arms, locks = _format_count(len(stacks.variations), "arm"), _format_count(len(stacks.stacks), "lock")
        solved = f", solved by uv {stacks.uv_version}" if stacks.uv_version else ""
        return f"{arms} with {locks}, for Python {pythons} on {stacks.platform}{solved}"
    return (
        f"{_format_count(len(stacks.stacks), 'stack')} by {stacks.decision}{seed}, "
        f"for Python {stacks.python} on {stacks.platform}, solved by uv {stacks.uv_version}"
    )


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _format_table(stacks: StackSet) -> list[str]:
    """The stacks, one a line; columns without content are left out."""
    rows = [("stack", "packages", "download", "key", "point", "also differs in")]
    differ = list_varying_packages(stacks.stacks)
    for stack in stacks.stacks:
        others = [label_package(stack, name) for name in differ if label_package(stack, name) not in stack.name]
        more = [f"and {len(others) - MAX_OTHERS} more"] if len(others) > MAX_OTHERS else []
        size = formats.format_bytes(stack.download_bytes) if stack.download_bytes is not None else "unknown"
        # Points of a grid have the names of its stacks; days and bounds need their own column.
        point = stack.origin[0] if stack.origin and stacks.decision in ("dates", "bounds") else ""
        also = ", ".join(others[:MAX_OTHERS] + more)
        rows.append((stack.name, str(len(stack.packages)), size, stack.key[:12], point, also))
    used = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    return _align_columns([[row[place] for place in used] for row in rows])


def _align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    return format_table(rows[1:], rows[0], right=("packages", "download", "size"))


def _format_rejections(stacks: StackSet) -> list[str]:
    """Rejected points, grouped by reason."""
    groups: dict[str, list[str]] = {}
    for rejection in stacks.rejected:
        # First clause of uv's explanation, without markers; the rest is derived from it.
        clause = re.sub(r"\{[^{}]*\}", "", rejection.reason).split(", we can conclude")[0]
        groups.setdefault(cut_text(clause, MAX_REASON), []).append(rejection.point)
    lines = [f"rejected: {_format_count(len(stacks.rejected), 'point')}, full reasons in the file"]
    for reason, points in list(groups.items())[:MAX_REASONS]:
        more = f"; and {len(points) - MAX_SHOWN_POINTS} more" if len(points) > MAX_SHOWN_POINTS else ""
        lines += [f"  {'; '.join(points[:MAX_SHOWN_POINTS])}{more}", f"    {reason}"]
    n_hidden = len(groups) - MAX_REASONS
    return [*lines, f"  and {_format_count(n_hidden, 'more reason')}"] if n_hidden > 0 else lines


def format_repeat_command(stacks: StackSet) -> str:
    """Command that reproduces the stacks on any later day."""
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
    if stacks.python != this_python_version():
        words += ["--python-version", stacks.python]
    if stacks.platform != this_platform() and (platform := find_uv_platform(stacks.platform)):
        words += ["--platform", platform]
    if stacks.decision != "dates":
        words += ["--exclude-newer", (stacks.exclude_newer or "never").removesuffix("T00:00:00Z")]
    if stacks.context is not None:
        context_text = json.dumps(stacks.context, ensure_ascii=False)
        words += ["--context", context_text if len(context_text) <= MAX_CONTEXT else "FILE"]
    return shlex.join(words)


def format_plan(plan: StackPlan) -> str:
    """Text of a plan: candidates and points in their order."""
    lines = [f"{name}: {', '.join(map(str, versions))}" for name, versions in plan.choices.items()]
    points = plan.list_first_points()
    seed = "" if plan.seed is None else f", seed {plan.seed}"
    lines += ["", f"{len(points)} of {_format_count(plan.total, 'point')} by {plan.request.decision}{seed}:"]
    lines += [f"  {point.label}" for point in points]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join([*lines, "", "nothing was solved (--dry-run)"]).lstrip()


def build_plan_document(plan: StackPlan) -> dict[str, Any]:
    """Plan as a JSON document."""
    return {
        "decision": plan.request.decision,
        "seed": plan.seed,
        "total": plan.total,
        "choices": {name: list(map(str, versions)) for name, versions in plan.choices.items()},
        "points": [point.label for point in plan.list_first_points()],
        "notes": list(plan.notes),
    }


def format_download(stacks: Sequence[Stack]) -> str:
    """Upper bound of the download; cached packages and packages shared by stacks reduce it."""
    files_bytes = {
        (package.name, package.version): package.download_bytes for stack in stacks for package in stack.packages
    }
    sizes = [size for size in files_bytes.values() if size is not None]
    unknown = len(files_bytes) - len(sizes)
    more = f", and {_format_count(unknown, 'package')} of unknown size" if unknown else ""
    return f"installing {_format_count(len(stacks), 'stack')}: download up to {formats.format_bytes(sum(sizes))}{more}"


def format_environments(environments: Sequence[Environment], stacks: Sequence[Stack]) -> str:
    """Paths of the environments and the time to create them."""
    lines = []
    for environment, stack in zip(environments, stacks, strict=True):
        took = (
            f"created in {environment.make_s:.2f} s, bytecode {environment.compile_s:.2f} s"
            if environment.made
            else "reused"
        )
        lines.append(f"{stack.name}: {took}: {environment.folder}")
    return "\n".join(lines)


def build_environment_documents(environments: Sequence[Environment], stacks: Sequence[Stack]) -> list[dict[str, Any]]:
    """Environments as JSON documents."""
    return [
        {
            "stack": stack.name,
            "key": environment.key,
            "folder": str(environment.folder),
            "python": str(environment.python),
            "made": environment.made,
            "make_s": environment.make_s,
            "compile_s": environment.compile_s,
            "record_sha256": environment.record_sha256,
        }
        for environment, stack in zip(environments, stacks, strict=True)
    ]


def format_requirement_files(stacks: StackSet) -> str:
    """Format all locks as one text, each after a comment with its name."""
    return "\n".join(f"# {number}: {stack.name}\n{stack.lock}" for number, stack in enumerate(stacks.stacks))


def write_stack_folders(stacks: StackSet, folder: str | Path) -> list[Path]:
    """Write a numbered folder per stack with requirements.txt and pylock.toml, in the layout of Dependency Monkey."""
    written = []
    for number, stack in enumerate(stacks.stacks):
        place = Path(folder) / str(number)
        with refuse_os_errors("cannot write the stacks", place, error_type=ConfigError):
            files.write_text(place / "requirements.txt", stack.lock)
            files.write_text(place / "pylock.toml", format_pylock(stack))
        written.append(place)
    return written


def write_stack_report(stacks: StackSet, places: Sequence[Path], path: str | Path) -> Path:
    """Write the report in the format of Dependency Monkey: number of skipped points, and each stack with its location.

    `response` is the folder of --stack-output, or else the stack's key.
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
        "rejected": [rejection.model_dump() for rejection in stacks.rejected],
    }
    with refuse_os_errors("cannot write the report", path, error_type=ConfigError):
        return files.write_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
