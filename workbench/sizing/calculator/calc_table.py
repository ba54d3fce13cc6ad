"""What `workbench sizing calc` prints: the toolkit's table with its alerts, counts over the target, the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.sizing.calculator.calcfile import LevelData
from workbench.sizing.calculator.calculation import LABELS, Answer, Calculation

LEGEND = "Alerts!: W = Workflow interrupted, L = LLM latency outlier, R = Workflow runtime outlier"
_PADDING = 2

Cell = str | int | float | None


def lines(result: Calculation) -> Iterator[str]:
    """The whole answer in lines: what was asked, the levels, the estimates or why there are none."""
    goal = result.goal
    yield (
        f"Targets: LLM Latency ≤ {float(goal.target_llm_latency_s)}s, "
        f"Workflow Runtime ≤ {float(goal.target_workflow_runtime_s)}s, Users = {goal.target_users}"
    )
    yield f"Test parameters: GPUs = {goal.test_gpu_count}"
    yield "Per concurrency results:"
    if any(letters(data) for data in result.output.calc_data.values()):
        yield LEGEND
    yield from table(*columns(result))
    yield from _left_out(result)
    if result.answers:
        yield ""
        yield "=== GPU ESTIMATES ==="
    yield from map(told, result.answers)
    known = [answer.gpus for answer in result.answers if answer.gpus is not None]
    if len(known) > 1:
        yield f"Both targets hold with the larger of them: {max(known):.1f}"


def told(answer: Answer) -> str:
    """An answer as a line."""
    name = LABELS[answer.metric]
    if answer.gpus is None:
        return f"No estimate ({name}): {answer.reason}"
    return f"Estimated GPU count ({name}): {answer.gpus:.1f}"


def letters(data: LevelData) -> str:
    """The alerts of a level as the toolkit writes them: ! with W, L and R; empty for none.

    Examples
    --------
    >>> letters(LevelData.model_validate({"alerts": {"outlier_llm_latency": True}}))
    '!L'
    """
    found = {
        "W": data.sizing_metrics.alerts.workflow_interrupted,
        "L": data.alerts.outlier_llm_latency,
        "R": data.alerts.outlier_workflow_runtime,
    }
    text = "".join(letter for letter, there in found.items() if there)
    return f"!{text}" if text else ""


def columns(result: Calculation) -> tuple[list[str], list[list[Cell]]]:
    """Headers and rows; columns of rough estimates, alerts and counts only where there is something in them."""
    levels = result.output.calc_data
    wanted: dict[str, list[Cell]] = {
        "Alerts": [letters(data) for data in levels.values()],
        "Concurrency": list(levels),
        "p95 LLM Latency": [data.sizing_metrics.llm_latency_p95 for data in levels.values()],
        "p95 WF Runtime": [data.sizing_metrics.workflow_runtime_p95 for data in levels.values()],
        "Total Runtime": [data.sizing_metrics.total_runtime for data in levels.values()],
        "GPUs (LLM Latency, Rough)": [data.gpu_estimates.gpu_estimate_by_llm_latency for data in levels.values()],
        "GPUs (WF Runtime, Rough)": [data.gpu_estimates.gpu_estimate_by_wf_runtime for data in levels.values()],
        "Over LLM Target": [data.alerts.num_items_greater_than_target_latency for data in levels.values()],
        "Over WF Target": [data.alerts.num_items_greater_than_target_runtime for data in levels.values()],
    }
    always = ("Concurrency", "p95 LLM Latency", "p95 WF Runtime", "Total Runtime")
    # A float is an estimate, be it 0; empty are "", null and a count of 0.
    kept = {
        name: column
        for name, column in wanted.items()
        if name in always or any(isinstance(value, float) or value for value in column)
    }
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Lines of a Markdown table as the toolkit's: numbers at the right with their points in line, six digits.

    Examples
    --------
    >>> print("\\n".join(table(["c", "p95"], [[1, 5.0], [16, 12.345678]])))
    |   c |     p95 |
    |-----|---------|
    |   1 |  5      |
    |  16 | 12.3457 |
    """
    cells = [_column(header, [row[index] for row in rows]) for index, header in enumerate(headers)]
    yield _line([column[0] for column in cells])
    yield "|" + "|".join("-" * (len(column[0]) + 2) for column in cells) + "|"
    for index in range(len(rows)):
        yield _line([column[index + 1] for column in cells])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _column(header: str, values: Sequence[Cell]) -> list[str]:
    number = bool(values) and not any(isinstance(value, str) for value in values)
    texts = ["" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    if number:
        behind = [_behind_point(text) for text in texts]
        texts = [text + " " * (max(behind) - count) for text, count in zip(texts, behind, strict=True)]
    width = max([len(header) + _PADDING, *map(len, texts)])
    return [text.rjust(width) if number else text.ljust(width) for text in (header, *texts)]


def _behind_point(text: str) -> int:
    """Digits behind the point (or the exponent), -1 for none."""
    place = max(text.rfind("."), -1) if "." in text else text.lower().rfind("e")
    return len(text) - place - 1 if place >= 0 else -1


def _left_out(result: Calculation) -> Iterator[str]:
    for number, why in result.left_out.items():
        yield f"Concurrency {number} is not in the fit: {why}"
