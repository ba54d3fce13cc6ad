"""The answer of a replay in one sentence, and the few figures below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.display import KeyNumber
from workbench.formats import number, size

if TYPE_CHECKING:
    from workbench.lore.outcome import Outcome


def answer(found: Outcome) -> str:
    """The result in one sentence: does it give the same, how long does it take, what does the other side change?

    Where the dump was refused, that.
    """
    if found.replayed is None:
        return f"{found.operator} was not replayed: the dump was refused."
    parts = [f"{found.operator}, replayed alone in a fresh process: {_verified(found)}"]
    if times := found.sides.rows(named=True):
        first = times[0]
        which = " on A" if len(times) > 1 else ""
        parts.append(f"{seconds(first['operator_s'])} {_ends(first['low_s'], first['high_s'])} a run{which}")
    if found.replayed.not_accelerated:
        parts.append("B left it to Spark")
    elif found.replayed.comparison is not None and not found.replayed.comparison["equal"]:
        parts.append("A and B gave different rows")
    elif (ratio := found.ratio) is not None:
        faster = f"{ratio['speed_ratio']:.2f} {_ratio_ends(ratio)} times as fast"
        parts.append(f"{other_side(found)} is {faster}: {ratio['verdict']}")
    elif found.sides.height == 2:
        parts.append("no ratio, for in some run reading the inputs alone took longer than with the operator")
    return "; ".join(parts) + "."


def other_side(found: Outcome) -> str:
    """What B is, as a sentence names it."""
    _, settings = own_settings(found)
    return f"B ({settings})" if settings else "B"


def own_settings(found: Outcome) -> tuple[str, str]:
    """What A has set and B has not, and the other way round; both empty with one side."""
    texts = dict(found.sides.select("side", "settings").iter_rows())
    left, right = (set(filter(None, texts.get(side, "").split(", "))) for side in "AB")
    return ", ".join(sorted(left - right)), ", ".join(sorted(right - left))


def of_outcome(found: Outcome) -> list[KeyNumber]:
    """Rows verified, time of the operator, time of the scan, ratio, size and skew of the inputs."""
    numbers: list[KeyNumber] = []
    if found.replayed is not None:
        seen = found.replayed.verification
        against = f"against {seen['compared_with']}"
        numbers.append(("verified", "PASS" if seen["passed"] else "FAIL", "", against))
    for row in found.sides.rows(named=True)[:1]:
        which = f"side {row['side']}, " if found.sides.height > 1 else ""
        ends = _ends(row["low_s"], row["high_s"])
        numbers.append(("operator", row["operator_s"], "s", f"{which}median of {row['n']} {ends}"))
        numbers.append(("its inputs read", row["scan_s"], "s", "taken off the operator's time"))
    if (ratio := found.ratio) is not None:
        numbers.append(("speed of B", ratio["speed_ratio"], "× A", f"{_ratio_ends(ratio)} {ratio['verdict']}"))
    return [*numbers, *_of_inputs(found)]


def seconds(value: float | None) -> str:
    """A short time as people read it."""
    return "–" if value is None else f"{number(value)} s"


def _of_inputs(found: Outcome) -> list[KeyNumber]:
    import polars as pl

    inputs = found.partitions.filter(pl.col("input") != "output")
    numbers: list[KeyNumber] = []
    if inputs.height:
        rows, n_bytes = int(inputs["n_rows"].sum()), int(inputs["n_bytes"].sum())
        numbers.append(("rows of inputs", rows, "", f"{size(n_bytes)} in {inputs.height} partitions"))
    skewed = inputs.filter(pl.col("skew_ratio").is_not_null()).sort("skew_ratio", descending=True)
    for row in skewed.rows(named=True)[:1]:
        place = f"{row['input']}, partition {row['partition']}"
        numbers.append(("largest partition", row["skew_ratio"], "× median", place))
    return numbers


def _verified(found: Outcome) -> str:
    seen: dict[str, Any] = found.replayed.verification if found.replayed is not None else {}
    word = "PASS" if seen["passed"] else "FAIL"
    if seen["n_expected"] is None or seen["n_found"] is None:
        return f"{word}, {seen['note'][0] if seen['note'] else 'the operator failed'}"
    if not seen["passed"]:
        return f"FAIL, {number(seen['n_found'])} rows where {seen['compared_with']} gave {number(seen['n_expected'])}"
    return f"PASS, {number(seen['n_found'])} rows {'row for row' if seen['row_for_row'] else 'in another order'}"


def _ends(low: float | None, high: float | None) -> str:
    return "(no interval)" if low is None or high is None else f"[{number(low)}, {number(high)}]"


def _ratio_ends(ratio: dict[str, Any]) -> str:
    low, high = ratio["low_ratio"], ratio["high_ratio"]
    return "(no interval)" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
