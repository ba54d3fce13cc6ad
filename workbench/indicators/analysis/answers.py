"""Do the compared do the same work? Outputs and answers of the arms beside the baseline's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from workbench.indicators.analysis.observations import Observations

RELATIVE_TOLERANCE = 1e-6
SIZE_ROOM = 0.01
MIN_SIZE_ROOM_BYTES = 16
MIN_STEADY_RUNS = 3
OUTPUT, LINES, SIZE, CODE = "output_sha256", "lines_sha256", "output_bytes", "ended_with"
EMPTY_OUTPUT = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@dataclass
class Answers:
    """Differences from the baseline by (arm, case), and notes on what could not be compared, or was accepted."""

    differences: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


Values = dict[tuple[str, str, str], list[str | None]]


def compare_answers(observations: Observations) -> Answers:
    """Compare every check and answer of an arm with those of the baseline and its control."""
    session, answers = observations.session, Answers()
    values: Values = {}
    compared: dict[tuple[str, str], None] = {}
    checks = observations.checks.select("arm", "case", "field", "value", "compared")
    for arm, case, name, value, is_compared in checks.iter_rows():
        group = session.baseline if session.get_arm(arm).is_control else arm
        values.setdefault((group, case, name), []).append(value)
        if is_compared:
            compared.setdefault((case, name))
    for case, name in compared:
        if name in (LINES, CODE) and (case, OUTPUT) in compared:
            continue
        for arm in dict.fromkeys(entry for entry, of_case, of_name in values if (of_case, of_name) == (case, name)):
            if arm == session.baseline or (session.baseline, case, name) not in values:
                continue
            compare = _compare_output if name == OUTPUT else _compare_field
            differences, notes = compare(values, arm, case, name, observations)
            if session.output == "any":
                notes += [f"accepted by --output any: {arm} {sentence}" for sentence in differences]
            else:
                answers.differences.setdefault((arm, case), []).extend(differences)
            answers.notes += [note for note in notes if note not in answers.notes]
    return answers


def _compare_field(
    values: Values, arm: str, case: str, name: str, observations: Observations
) -> tuple[list[str], list[str]]:
    """Differences of a check or answer, and notes."""
    baseline = observations.session.baseline
    base, found = values[baseline, case, name], values[arm, case, name]
    if any(not _is_equal(value, base[0]) for value in base):
        if len(found) >= MIN_STEADY_RUNS and all(_is_equal(value, found[0]) for value in found):
            return [f"{name} is always the same, the baseline's changes from run to run"], []
        return [], [f"{case}: {name} of {baseline} changes from run to run: it is not compared"]
    others = [value for value in found if not _is_equal(value, base[0])]
    if not others:
        return [], []
    share = "" if len(others) == len(found) else f" in {len(others)} of {len(found)} runs"
    return [f"{name} differs from the baseline's{share} ({_shorten(others[0])}, baseline {_shorten(base[0])})"], []


def _compare_output(
    values: Values, arm: str, case: str, name: str, observations: Observations
) -> tuple[list[str], list[str]]:
    """Differences of what commands print, by digest, by lines where their order changes, or else by size."""
    baseline, accepted = observations.session.baseline, observations.session.output
    base, found = values[baseline, case, name], values[arm, case, name]
    differences = list(_compare_exit_codes(values, arm, case, baseline))
    lines = [values.get((entry, case, LINES), [None]) for entry in (baseline, arm)]
    has_steady_lines = len(set(lines[0])) == 1 and lines[0][0] is not None
    is_steady = len(set(base)) == 1
    if has_steady_lines and (accepted == "lines" or not is_steady):
        base, found, is_steady = lines[0], lines[1], True
    sizes = f"{_format_sizes(values, arm, case)}, the baseline {_format_sizes(values, baseline, case)}"
    if not is_steady:
        note = f"what {baseline} prints changes from run to run: it is compared by its size alone"
        if len(found) >= MIN_STEADY_RUNS and len(set(found)) == 1:
            differences.append("always prints the same, and the baseline something else from run to run")
        elif count := _count_other_sizes(values, arm, baseline, case):
            differences.append(f"prints something else than the baseline in {count} of {len(found)} runs: {sizes}")
        return differences, [note]
    others = [value for value in found if value != base[0]]
    if not others:
        is_silent = set(base) == {EMPTY_OUTPUT}
        note = f"neither {baseline} nor {arm} prints anything: whether they do the same work is not known"
        return differences, [note] if is_silent else []
    if set(lines[1]) == set(lines[0]) and has_steady_lines:
        return [*differences, "prints other order of the same lines (--output lines accepts it)"], []
    share = "" if len(others) == len(found) else f" in {len(others)} of {len(found)} runs"
    return [*differences, f"prints something else than the baseline{share}: {sizes}"], []


def _compare_exit_codes(values: Values, arm: str, case: str, baseline: str) -> Iterator[str]:
    """Exit codes that the baseline never has."""
    base, found = values.get((baseline, case, CODE), []), values.get((arm, case, CODE), [])
    if new := sorted({str(code) for code in found} - {str(code) for code in base}):
        yield f"ends with exit code {' or '.join(new)}, the baseline with {' or '.join(sorted(map(str, set(base))))}"


def _list_sizes(values: Values, arm: str, case: str) -> list[int]:
    return sorted(int(value) for value in values.get((arm, case, SIZE), []) if value is not None)


def _format_sizes(values: Values, arm: str, case: str) -> str:
    sizes = _list_sizes(values, arm, case)
    if not sizes:
        return "other bytes"
    return f"{sizes[0]:,} bytes" if sizes[0] == sizes[-1] else f"{sizes[0]:,} to {sizes[-1]:,} bytes"


def _count_other_sizes(values: Values, arm: str, baseline: str, case: str) -> int:
    """Runs whose output has another size than the baseline's, beyond the spread that changing outputs have."""
    found, base = _list_sizes(values, arm, case), _list_sizes(values, baseline, case)
    if not base:
        return 0
    room = max(base[-1] - base[0], SIZE_ROOM * base[-1], MIN_SIZE_ROOM_BYTES)
    return sum(not base[0] - room <= size <= base[-1] + room for size in found)


def _is_equal(value: str | None, other: str | None) -> bool:
    """Whether two values are the same, but for rounding where they are fractions."""
    if value == other:
        return True
    if value is None or other is None or "." not in value + other:
        return False
    try:
        numbers = float(value), float(other)
    except ValueError:
        return False
    return all(map(math.isfinite, numbers)) and math.isclose(*numbers, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)


def _shorten(value: str | None) -> str:
    text = "null" if value is None else value
    return text if len(text) <= 24 else f"{text[:12]}…"
