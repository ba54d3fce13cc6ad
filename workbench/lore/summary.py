"""Answer, key numbers, next steps and status line of a replay."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.core.formats import escape_html, fit_answer, format_bytes, format_number
from workbench.report.display import CellDisplay, KeyNumber
from workbench.report.study import RUN_NOTE
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED

if TYPE_CHECKING:
    from workbench.lore.replays.replay_outcome import ReplayOutcome


MAX_TEXT_CHARS = 20_000


def format_answer(outcome: ReplayOutcome) -> str:
    """The result in one sentence: whether A and B agree and the ratio; of one side, its rows and its time.

    A refused dump has the refusal as its answer.
    """
    operator = _name_operator(outcome)
    if outcome.replayed is None:
        return fit_answer(f"{operator} was not replayed: the dump was refused.", "Not replayed: the dump was refused.")
    seen = outcome.replayed.verification
    if not seen["passed"] or seen["n_expected"] is None or seen["n_found"] is None:
        return fit_answer(f"{_format_verification(outcome)}.", *_shorten_verification(outcome))
    if compared := _format_comparison(outcome):
        return fit_answer(*compared)
    rows = f"gives the same {format_number(seen['n_found'])} rows"
    time = _format_time(outcome)
    return fit_answer(
        f"{operator} replayed alone {rows}{time}.", f"{operator} {rows}{time}.", f"It {rows}{time}.", f"It {rows}."
    )


def _name_verdict(seen: dict[str, Any]) -> str:
    """The word of a verification, such as PASS (recomputed)."""
    return str(seen.get("word") or ("PASS" if seen["passed"] else "FAIL"))


def _name_operator(outcome: ReplayOutcome) -> str:
    """The operator without its number in the plan."""
    return outcome.operator.partition(" (loreId")[0]


def list_details(outcome: ReplayOutcome) -> list[str]:
    """Sentences below the answer: the verification, the time of A, the settings of B."""
    if outcome.replayed is None:
        return [outcome.refused] if outcome.refused else []
    _, settings = find_differing_settings(outcome)
    return [
        f"{_format_verification(outcome)}{_format_time(outcome).replace(' in ', ', in ', 1)}.",
        *([f"A is the query as dumped; B sets {settings}."] if settings else []),
    ]


def _shorten_verification(outcome: ReplayOutcome) -> tuple[str, ...]:
    """Shorter wordings of a verification that failed, or that no rows were compared for."""
    seen: dict[str, Any] = outcome.replayed.verification if outcome.replayed is not None else {}
    word = _name_verdict(seen)
    if seen["n_expected"] is None or seen["n_found"] is None:
        return (f"{word}: {seen['note'][0] if seen['note'] else 'the operator failed'}.", f"{word}: no rows compared.")
    if word == UNDECIDED:
        return (f"{word}: other rows in each run over the same inputs.",)
    counts = f"{format_number(seen['n_found'])} rows instead of {format_number(seen['n_expected'])}"
    return (f"{word}: {_name_operator(outcome)} gives {counts}.", f"{word}: {counts}.")


def _format_verification(outcome: ReplayOutcome) -> str:
    seen: dict[str, Any] = outcome.replayed.verification if outcome.replayed is not None else {}
    word = _name_verdict(seen)
    if seen["n_expected"] is None or seen["n_found"] is None:
        return f"{word}: {outcome.operator}, {seen['note'][0] if seen['note'] else 'the operator failed'}"
    n_found, n_expected = format_number(seen["n_found"]), format_number(seen["n_expected"])
    if not seen["passed"]:
        if word == UNDECIDED:
            return f"{word}: {outcome.operator} gives other rows in each run over the same inputs"
        expected = f"{seen['compared_with']} gave {n_expected}"
        return f"{word}: {outcome.operator} replayed alone gives {n_found} rows; {expected}"
    order = "row for row" if seen["row_for_row"] else "in another order"
    if seen.get("tolerance") is not None:
        order = f"floats within {seen['tolerance']:g}"
    return f"{word}: {outcome.operator} replayed alone gives the same {n_found} rows, {order}"


def _format_time(outcome: ReplayOutcome) -> str:
    """The median elapsed time of the first side, with its interval; empty where nothing was timed."""
    if not outcome.sides.height:
        return ""
    row = outcome.sides.row(0, named=True)
    which = " on A" if outcome.sides.height > 1 else ""
    if row["operator_s"] is not None:
        ends = _format_interval(_format_end(row["low_s"]), _format_end(row["high_s"]), outcome.level)
        return f" in {format_seconds(row['operator_s'])}{which}, {ends}"
    if row["below_s"] is None:
        return f"; its elapsed time is not resolved in {row['n']} runs"
    return f"; its elapsed time is not resolved: below {format_number(1e3 * row['below_s'])} ms"


def _format_comparison(outcome: ReplayOutcome) -> tuple[str, ...]:
    """B against A, from the longest wording to the shortest; empty with one side."""
    replayed = outcome.replayed
    assert replayed is not None
    if replayed.not_accelerated:
        return ("B left it to Spark.",)
    if replayed.comparison is not None and not replayed.comparison["equal"]:
        column = replayed.comparison.get("differing_column")
        where = (f"A and B gave different rows, first in column {column}.",) if column else ()
        return (*where, "A and B gave different rows.")
    if (ratio := outcome.ratio) is None:
        if outcome.sides.height < 2:
            return ()
        return (*_claim_whole_ratio(outcome), "No ratio of B to A: the operator's time is not resolved in every run.")
    estimate, interval = _format_ratio(ratio)
    operator, rows = _name_operator(outcome), f"same {format_number(replayed.verification['n_found'])} rows"
    claim, short = {
        FASTER: (f"{operator} is {estimate}x faster with B than with A", f"B is {estimate}x faster"),
        SLOWER: (f"{operator} is {estimate}x slower with B than with A", f"B is {estimate}x slower"),
        SAME: (f"{operator} is as fast with B as with A: {estimate}x", f"B is as fast: {estimate}x"),
    }.get(
        ratio["verdict"],
        (f"Not decided whether {operator} is faster with B: {estimate}x", f"Not decided: {estimate}x"),
    )
    return (f"{claim}, {interval}; {rows}.", f"{claim}, {interval}.", f"{short}, {interval}.")


def _claim_whole_ratio(outcome: ReplayOutcome) -> tuple[str, ...]:
    """B against A with the reading of the inputs, where the operator's own time is not resolved; empty if undecided."""
    whole = next((row for row in outcome.ratios.iter_rows(named=True) if row["quantity"] == "operator and scan"), None)
    if whole is None or whole["verdict"] not in (FASTER, SLOWER):
        return ()
    estimate, ends = _format_ratio(whole)
    word = "slower" if whole["verdict"] == SLOWER else "faster"
    claim = f"{_name_operator(outcome)} with reading its inputs is {estimate}x {word} with B"
    return (f"{claim}, {ends}.", f"{claim}.", f"With reading its inputs, B is {estimate}x {word}, {ends}.")


def _format_ratio(ratio: Mapping[str, Any]) -> tuple[str, str]:
    """How many times faster B is, or slower where the verdict says so, and its interval; two digits are enough."""
    estimate, ends = ratio["speed_ratio"], [ratio["low_ratio"], ratio["high_ratio"]]
    if ratio["verdict"] == SLOWER:
        estimate, ends = 1 / estimate, [None if end is None else 1 / end for end in reversed(ends)]
    low, high = (None if end is None else _format_times(end) for end in ends)
    return _format_times(estimate), "no interval" if low is None or high is None else f"{low} to {high}"


def _format_times(value: float) -> str:
    return f"{value:.{2 if value < 3 else 1 if value < 10 else 0}f}"


def format_other_side(outcome: ReplayOutcome) -> str:
    """B with the settings that A does not have."""
    _, settings = find_differing_settings(outcome)
    return f"B ({settings})" if settings else "B"


def find_differing_settings(outcome: ReplayOutcome) -> tuple[str, str]:
    """Settings that only A has, and those that only B has; both empty with one side."""
    texts = dict(outcome.sides.select("side", "settings").iter_rows())
    left, right = (set(filter(None, texts.get(side, "").split(", "))) for side in "AB")
    return ", ".join(sorted(left - right)), ", ".join(sorted(right - left))


def build_key_numbers(outcome: ReplayOutcome) -> list[KeyNumber]:
    """Verification, time of the operator and of the scan, ratio, size and skew of the inputs."""
    numbers: list[KeyNumber] = []
    if outcome.replayed is not None:
        seen = outcome.replayed.verification
        against = f"against {seen['compared_with']}"
        word, _, how = _name_verdict(seen).partition(" (")
        numbers.append(("verified", word, how.removesuffix(")"), against))
    for row in outcome.sides.rows(named=True)[:1]:
        which = f"side {row['side']}, " if outcome.sides.height > 1 else ""
        quantities = [("elapsed", "operator_s", "s"), ("CPU", "operator_cpu_s", "cpu_s")]
        # A headline has room for six: with a ratio beside them, the time that the answer uses.
        if outcome.sides.height > 1:
            quantities = quantities[:1]
        for name, column, suffix in quantities:
            ends = _format_interval(
                _format_end(row[f"low_{suffix}"]), _format_end(row[f"high_{suffix}"]), outcome.level
            )
            numbers.append((f"operator, {name}", row[column], "s", f"{which}median of {row['n']}, {ends}"))
        numbers.append(("reading its inputs", row["scan_s"], "s", "elapsed; subtracted from the operator's time"))
    if (ratio := outcome.ratio) is not None:
        times, ends = _format_ratio(ratio)
        ends = ends if ends == "no interval" else f"{100 * outcome.level:g} % interval {ends}"
        label = "B is slower" if ratio["verdict"] == SLOWER else "B is faster"
        numbers.insert(0, (label, times, "×", f"{ends}, {ratio['verdict']}"))
    return [*numbers, *_build_input_numbers(outcome)]


def format_seconds(value: float | None) -> str:
    """Seconds for display, a dash where there are none.

    >>> format_seconds(1.25), format_seconds(None)
    ('1.25 s', '–')
    """
    return "–" if value is None else f"{format_number(value)} s"


def _build_input_numbers(outcome: ReplayOutcome) -> list[KeyNumber]:
    """Key numbers of a dump's inputs: all rows, and the partition with the largest ratio to the median."""
    import polars as pl

    inputs = outcome.partitions.filter(pl.col("input") != "output")
    numbers: list[KeyNumber] = []
    if inputs.height:
        rows, n_bytes = int(inputs["n_rows"].sum()), int(inputs["n_bytes"].sum())
        numbers.append(("rows of inputs", rows, "", f"{format_bytes(n_bytes)} in {inputs.height} partitions"))
    skewed = inputs.filter(pl.col("skew_ratio").is_not_null()).sort("skew_ratio", descending=True)
    for row in skewed.rows(named=True)[:1]:
        place = f"{row['input']}, partition {row['partition']}"
        numbers.append(("largest partition", row["skew_ratio"], "× median", place))
    return numbers


def _format_end(value: float | None) -> str | None:
    return None if value is None else format_number(value)


def _format_interval(low: str | None, high: str | None, level: float) -> str:
    return "no interval" if low is None or high is None else f"{100 * level:g} % interval {low} to {high}"


def list_next_steps(outcome: ReplayOutcome, dump_path: str = "") -> list[str]:
    """Advise what to do about the result, and how to share the operator.

    `dump_path` is where the user has the dump; without it, the dump is in the run folder.
    """
    dump = shlex.quote(dump_path) if dump_path else f"RUN/{'/'.join(outcome.place.parts[-2:])}"
    note = "" if dump_path else RUN_NOTE
    if outcome.replayed is None:
        return [f"Inspect the dump without running anything: `workbench lore inspect {dump}`{note}."]
    bundle = f"Share the operator as one file: `workbench lore bundle {dump}`{note}."
    replayed = outcome.replayed
    if not replayed.verification["passed"]:
        if replayed.verification["n_found"] is None:
            return [f"Find the smallest input with which it fails: `workbench lore bisect {dump}`{note}.", bundle]
        again = "`workbench lore dump QUERY --mode inline` captures the rows of the query itself"
        return [f"Do not use its time: replayed alone it gives other rows. {again}.", bundle]
    if replayed.not_accelerated:
        return ["Choose another operator with `-p ids=ID`: the engine left this one to Spark.", bundle]
    if replayed.comparison is not None and not replayed.comparison["equal"]:
        smallest = f"`workbench lore bisect {dump} --b KEY=VALUE`{note}"
        return [f"Do not use B: it gives other rows. Find the smallest input that shows it: {smallest}.", bundle]
    return [_format_ratio_step(outcome), bundle]


def _format_ratio_step(outcome: ReplayOutcome) -> str:
    if outcome.ratio is None and outcome.sides.height > 1:
        return "Repeat more often, on a quiet machine: `workbench run lore -p repeat=20`."
    if outcome.ratio is None:
        return "Compare a setting with this run: `workbench run lore -p 'confs_b=[\"KEY=VALUE\"]'`."
    steps = {
        FASTER: "Try {b} on the whole query: this operator gets faster, the query may gain less.",
        SLOWER: "Keep A: {b} makes this operator slower.",
        SAME: "Keep A: {b} is equivalent for this operator. Look at another one with `-p ids=ID`.",
        UNDECIDED: "Repeat more often, the interval is too wide to decide: `workbench run lore -p repeat=20`.",
    }
    return steps[outcome.ratio["verdict"]].format(b=format_other_side(outcome))


def render_texts(parts: Mapping[str, str]) -> CellDisplay:
    """Preformatted texts below each other, each with a heading and cut to 20,000 characters."""
    cut = {name: text.rstrip()[:MAX_TEXT_CHARS] for name, text in parts.items()}
    html = "".join(
        f'<p><strong>{escape_html(name)}</strong></p><pre class="out">{escape_html(text)}</pre>'
        for name, text in cut.items()
    )
    return CellDisplay(html, "\n\n".join(f"{name}\n{text}" for name, text in cut.items()))
