"""Summary of a plan: key numbers, next steps, the text and JSON document of the command."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.capacity import peak
from workbench.capacity.model import ROUNDING
from workbench.capacity.model_inputs import format_count
from workbench.core.formats import format_number
from workbench.report.display import KeyNumber, table

if TYPE_CHECKING:
    from workbench.capacity.study import Study


def list_key_numbers(plan_study: Study) -> list[KeyNumber]:
    """GPUs of Spark and service, nodes, both costs and the pod rate, each with P5 and P95."""
    figures = set(plan_study.day["figure"].to_list())
    named = [
        (peak.SPARK_GPUS, "Spark at its peak", "GPUs"),
        (peak.SERVICE_GPUS, "service at its peak", "GPUs"),
        (peak.NODES, "at the peak", "nodes"),
        (peak.COST_SCALED, "cost, scaled by the hour", "a day"),
        (peak.COST_FIXED, "cost, fixed at the peak", "a day"),
    ]
    numbers: list[KeyNumber] = [
        (label, _whole_median(plan_study.get_figure(name)), unit, _format_ends(plan_study.get_figure(name)))
        for name, label, unit in named
        if name in figures
    ]
    return [*numbers, _build_rate_number(plan_study)]


def _whole_median(row: dict[str, Any]) -> float | int:
    value = float(row["p50"])
    return int(value) if value.is_integer() else value


def _format_ends(row: dict[str, Any]) -> str:
    return f"P5 {format_number(row['p5'])}, P95 {format_number(row['p95'])}"


def _build_rate_number(found: Study) -> KeyNumber:
    scheduler = found.found.scheduler
    low = None if scheduler is None else scheduler.low_per_s
    sustained = "sustained rate not measured" if low is None else f"{format_number(low)} sustained"
    return ("pods at their peak", found.pods_per_s, "pods/s", f"P95; {sustained}")


_OWN = (
    "Inputs are simulated: use your own runs, `workbench run capacity_plan -p sizing=RUN -p scaletest=RUN`,"
    " and set day, nodes and prices (`workbench capacity settings`)."
)


def list_next_steps(plan_study: Study) -> list[str]:
    """Nodes to provide, how to relax the binding constraint, and the input to measure again."""
    if plan_study.reasons:
        return [
            "Order nothing by this plan: repeat the runs that the reasons name.",
            *_advise_on_constraint(plan_study),
        ]
    return [_advise_on_nodes(plan_study), *_advise_on_constraint(plan_study), *_advise_on_uncertainty(plan_study)]


def _advise_on_nodes(found: Study) -> str:
    nodes = found.get_figure(peak.NODES)
    middle, high = (math.ceil(float(nodes[end]) - ROUNDING) for end in ("p50", "p95"))
    if not high:
        return "Provide nothing: no hour needs a node."
    if middle == high:
        return f"Provide {format_count(high, 'node')} for the peak: enough in 19 of 20 draws."
    enough = f"{format_number(middle)} are enough in half of them"
    return f"Provide {format_number(high)} nodes for the peak: enough in 19 of 20 draws; {enough}."


def _advise_on_constraint(found: Study) -> list[str]:
    rows = found.constraints.filter("binding").to_dicts()
    if not rows:
        return []
    what = "make the scheduler keep up first" if rows[0]["constraint"] == peak.RATE else "need fewer nodes"
    return [f"To {what}: {rows[0]['relief']}."]


def _advise_on_uncertainty(found: Study) -> list[str]:
    service, scheduler = found.found.service, found.found.scheduler
    if (service is not None and service.simulated) or (scheduler is not None and scheduler.simulated_nodes):
        return [_OWN]
    if not found.tornado.height:
        return []
    row = found.tornado.row(0, named=True)
    return [f"Measure {row['input']} more precisely: it moves the peak by {format_number(row['swing_gpus'])} GPUs."]


def format_plan(plan_study: Study) -> str:
    """The plan as text: answer, day, constraints, inputs and notes."""
    from workbench.capacity import tables

    lines = [f"INVALID: {reason}" for reason in plan_study.reasons]
    lines += [plan_study.answer, ""]
    lines.append(table(plan_study.day, tables.DAY, caption="The day, over all draws").text)
    shown = plan_study.constraints.select("constraint", "figure", "unit", "nodes_saved", "binding")
    lines += ["", table(shown, tables.CONSTRAINTS, caption=f"At the peak, {plan_study.peak_hour:02d}:00").text]
    shown = plan_study.sources.select("input", "value", "low", "high", "unit", "run", "verdict")
    lines += ["", table(shown, tables.SOURCES, caption="Inputs").text, ""]
    lines += [f"note: {note}" for note in plan_study.notes]
    return "\n".join(lines)


def build_plan_document(plan_study: Study, out: Path | None) -> dict[str, Any]:
    """The plan as one JSON document, with all tables except the what-if."""
    return {
        "answer": plan_study.answer,
        "verdict": plan_study.verdict,
        "reasons": list(plan_study.reasons),
        "notes": list(plan_study.notes),
        "peak_hour": plan_study.peak_hour,
        "bound_by": plan_study.bound_by,
        "scheduler": plan_study.kept_up,
        "folder": None if out is None else str(out),
        **{one.name: frame.to_dicts() for one, frame in plan_study.tables() if one.name != "what_if"},
    }
