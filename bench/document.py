"""docs/benchmarks.md out of what the benchmarks kept."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from bench import headlines, shape
from bench.shape import Bar, Row
from workbench.core import host

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
"""What each benchmark found, kept with the code: the page is made of it alone."""
HEAD = "| area | what | here | beside it | ratio [90 %] | commit |\n|---|---|---|---|---|---|"
INTRO = """# Benchmarks

Made by `python -m bench`; no figure is written by hand. Sides run in turn, the order turned from trial to trial.
A figure is the median [least, most] of n trials, of whole processes where the text does not say otherwise. A ratio is
that of the pairs of one trial (mean logarithm, 90 % t interval): **above 1, ours is that many times better**. Single
times of a shared machine are worth little; ratios are what can be compared.
"""


def machine() -> dict[str, str]:
    """The class of the machine and what measured: nothing that names it."""
    facts = host.read_host_facts()
    java = _said(["java", "-version"])
    version = re.search(r'version "([^"]+)"', java)
    go = re.search(r"go([\d.]+)", _said(["go", "version"]))
    pretty = re.search(r'PRETTY_NAME="([^"]+)"', _text(Path("/etc/os-release")))
    return {
        "processor": f"{facts['cpu_model']}, {facts['cores']} cores",
        "memory": f"{facts['memory_bytes'] / 1e9:.0f} GB",
        "accelerators": ", ".join(one["name"] for one in facts["accelerators"]) or "none",
        "system": pretty[1] if pretty else platform.system(),
        "Python": platform.python_version(),
        "Java": version[1] if version else "none on PATH",
        "Go": go[1] if go else "none on PATH",
    }


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def kept(folder: Path) -> list[dict[str, Any]]:
    """What each benchmark kept, in their order."""
    paths = [folder / f"{one.name}.json" for one in headlines.ALL]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def rows_of(one: dict[str, Any]) -> list[Row]:
    """The rows of a benchmark."""
    return [Row(**{**row, "bar": Bar(**row["bar"]) if row["bar"] else None}) for row in one["rows"]]


def written(found: list[dict[str, Any]]) -> str:
    """The whole page."""
    parts = [INTRO, *_machines(found)]
    parts += ["## In short\n", short(found), ""]
    for area in dict.fromkeys(one.area for one in headlines.ALL):
        parts += [f"## {area}\n", *[_section(one) for one in found if one["area"] == area]]
        absent = [
            one.name for one in headlines.ALL if one.area == area and one.name not in {told["name"] for told in found}
        ]
        parts += [f"Not measured yet: {', '.join(f'`python -m bench {name}`' for name in absent)}.\n"] if absent else []
    parts += ["## What was not measured\n", _missing(found)]
    return "\n".join(parts)


def _machines(found: list[dict[str, Any]]) -> list[str]:
    """One line for each machine and day."""
    kinds: dict[str, list[str]] = {}
    for one in found:
        told = ", ".join(f"{name} {value}" for name, value in one["machine"].items())
        kinds.setdefault(f"{one['date']}: {told}", []).append(one["name"])
    if len(kinds) == 1:
        return [f"Measured {text}.\n" for text in kinds]
    return [f"Measured {text} ({', '.join(names)}).\n" for text, names in kinds.items()]


def short(found: list[dict[str, Any]]) -> str:
    """The figures that stand out, as a table."""
    lines = [HEAD]
    by_name = {one["name"]: one for one in found}
    for name, end, side, beside in headlines.TOLD:
        rows = rows_of(by_name[name]) if name in by_name else []
        # The measured scenario's text has sizes in it, so its end is what is looked for.
        ours = next(
            (row for row in rows if row.side == side and row.scenario.endswith(end) and not row.peer and row.values),
            None,
        )
        if ours is None:
            continue
        other = next((row for row in rows if row.side == beside and row.scenario == ours.scenario), None)
        lines.append(f"{_line(ours, other)} {_commit(by_name[name])} |")
    return "\n".join(lines) if len(lines) > 1 else ""


def _commit(one: dict[str, Any]) -> str:
    return str(one["commit"] or "unknown")[:10]


def _line(ours: Row, other: Row | None) -> str:
    beside = f"{_plain(other)}: {other.told()}" if other else "–"
    times = shape.told_ratio(shape.ratio(ours, other)) if other else "–"
    return f"| {ours.area} | {ours.scenario}: {ours.side} | {ours.told()} | {beside} | {times} |"


def _plain(row: Row) -> str:
    return row.side if row.peer in ("", "reference") else f"{row.side} ({row.peer})"


def _section(one: dict[str, Any]) -> str:
    """A benchmark: its table, or why there is none."""
    measured = f"{one['date']}, commit {_commit(one)}, {one['wall_s']:.0f} s in all"
    lines = [f"### {one['name']}\n", f"`{one['command']}`, {measured}.\n"]
    if one["exit_code"]:
        lines.append(f"**Ended with exit code {one['exit_code']}**: {one['error']}\n")
    rows = rows_of(one)
    if rows:
        lines += ["| scenario | ours | beside | ratio [90 %] | bar |", "|---|---|---|---|---|"]
    for scenario in dict.fromkeys(row.scenario for row in rows):
        own = [row for row in rows if row.scenario == scenario]
        peers: list[Row | None] = [row for row in own if row.peer]
        for ours in [row for row in own if not row.peer]:
            lines += [_row(ours, other) for other in peers or [None]]
    if failures := [f"- failed trial: {row.side}: {text}" for row in rows for text in row.failures]:
        lines += ["", *failures]
    return "\n".join(lines) + "\n"


def _row(ours: Row, other: Row | None) -> str:
    found = shape.ratio(ours, other) if other else None
    note = f" ({ours.note})" if ours.note else ""
    beside = f"{_plain(other)}: {other.told()}" + (f" ({other.note})" if other.note else "") if other else "–"
    cells = [
        ours.scenario,
        f"{ours.side}: {ours.told()}{note}",
        beside,
        shape.told_ratio(found),
        _bar(ours, other, found),
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _bar(ours: Row, other: Row | None, found: Any) -> str:
    """The bar of an issue and whether it is kept."""
    if ours.bar is None or (ours.bar.of == "ratio" and found is None):
        return "–"
    if ours.bar.beside and (other is None or other.side != ours.bar.beside):
        return "–"
    value = ours.median if ours.bar.of == "value" else found.estimate
    if value is None:
        return f"{ours.bar.text()}: no value"
    return f"{ours.bar.text()}: {'kept' if ours.bar.kept(value) else '**missed**'}"


def _missing(found: list[dict[str, Any]]) -> str:
    told = dict(headlines.NO_PEER)
    for one in found:
        told |= one["missing"]
    return "\n".join(f"- **{name}**: {reason}." for name, reason in told.items()) + "\n"
