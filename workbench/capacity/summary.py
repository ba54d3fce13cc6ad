"""Summary of a plan: key numbers, next steps, the text and JSON document of the command."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.capacity import peak
from workbench.capacity.information import MEASUREMENT, choose_nodes
from workbench.capacity.inputs import AREAS, RUN_COMMANDS, format_count
from workbench.core.formats import format_cost_unit, format_number
from workbench.report.display import KeyNumber, table

if TYPE_CHECKING:
    from workbench.capacity.capacity_plan import Plan


_OWN = (
    "Inputs are simulated: use your own runs, `workbench run capacity_plan -p sizing=RUN -p scaletest=RUN`,"
    " and set day, nodes and prices (`workbench capacity settings`)."
)


def list_key_numbers(plan_study: Plan) -> list[KeyNumber]:
    """GPUs of the peak hour, of Spark and service, and nodes at their upper end; costs at the same end."""
    figures = set(plan_study.day["figure"].to_list())
    named = [
        (peak.GPUS, f"at the peak, {plan_study.peak_hour:02d}:00", "p95"),
        (peak.SPARK_GPUS, "Spark at its peak", "p95"),
        (peak.SERVICE_GPUS, "service at its peak", "p95"),
        (peak.NODES, "at the peak", "p95"),
        (peak.COST_SCALED, "cost if nodes scale by the hour", "p95"),
        (peak.COST_FIXED, "cost of these nodes all day", "p95"),
    ]
    return [
        (
            label,
            _format_figure(row, share, is_ordered=name in (peak.GPUS, peak.NODES)),
            row["unit"],
            _format_others(row, share, is_ordered=name in (peak.GPUS, peak.NODES)),
        )
        for name, label, share in named
        if name in figures
        for row in [plan_study.get_figure(name)]
    ]


def _format_figure(row: dict[str, Any], share: str, *, is_ordered: bool) -> float | int:
    """A quantile of a figure; what is ordered is rounded up, as in the answer."""
    value = float(row[share])
    if is_ordered:
        return math.ceil(value - 1e-9)
    return int(value) if value.is_integer() else value


def _format_others(row: dict[str, Any], share: str, *, is_ordered: bool) -> str:
    names = {"p5": "P5", "p50": "median", "p95": "P95"}
    others = [
        (name, _format_figure(row, other, is_ordered=is_ordered)) for other, name in names.items() if other != share
    ]
    return f"{names[share]}; " + ", ".join(f"{name} {format_number(figure)}" for name, figure in others)


def list_next_steps(plan_study: Plan) -> list[str]:
    """Nodes to provide, how to relax the binding constraint, and the input to measure again."""
    if plan_study.reasons:
        return [
            "Do not order by this plan: repeat the runs that the reasons name.",
            *_advise_on_constraint(plan_study),
        ]
    return [_advise_on_nodes(plan_study), *_advise_on_constraint(plan_study), *_advise_on_uncertainty(plan_study)]


def _advise_on_nodes(study: Plan) -> str:
    needed, factor = study.outcome.nodes.max(axis=1), study.config.shortage_factor
    middle, high = choose_nodes(needed, 1.0), choose_nodes(needed, factor)
    if not high:
        return "Provide nothing: no hour needs a node."
    enough = "19 of 20" if factor == 19 else f"{factor / (1 + factor):.3g} of all"
    sentence = f"Provide {format_count(high, 'node')} for the peak: enough in {enough} draws"
    if middle == high:
        return f"{sentence}."
    return f"{sentence}; {format_number(middle)} are enough in half of them."


def _advise_on_constraint(study: Plan) -> list[str]:
    rows = study.constraints.filter("binding").to_dicts()
    if not rows:
        return []
    aim = "make the scheduler keep up first" if rows[0]["constraint"] == peak.RATE else "need fewer nodes"
    return [f"To {aim}: {rows[0]['relief']}."]


def _advise_on_uncertainty(study: Plan) -> list[str]:
    """Advise which input to measure next: the one whose exact value would save most."""
    service, scheduler = study.found.service, study.found.scheduler
    if (service is not None and service.simulated) or (scheduler is not None and scheduler.simulated_nodes):
        return [_OWN]
    if service is not None and service.at_least:
        return ["Measure higher loads first, `workbench run sizing` with more users: the service may need fewer GPUs."]
    inputs = study.information.filter(pl.col("resolved") & (pl.col("kind") == MEASUREMENT))
    if not inputs.height:
        return []
    row = inputs.row(0, named=True)
    is_priced = study.model.node_price_per_h is not None
    unit = format_cost_unit(study.config.currency, "a day") if is_priced else "of an idle node a day"
    command = _name_command(study, row["input"])
    return [
        f"Measure {row['input']} next with more samples, `{command}`: to know it exactly is worth up to"
        f" {format_number(row['saving'])} {unit}, {100 * row['share']:.0f} % of what knowing everything is."
    ]


def _name_command(study: Plan, name: str) -> str:
    """The command that measures an input."""
    row = study.sources.row(by_predicate=pl.col("input") == name, named=True)
    return next(RUN_COMMANDS[area] for area in RUN_COMMANDS if row["area"] in AREAS.get(area, (area,)))


def format_plan(plan_study: Plan) -> str:
    """The plan as text: answer, day, constraints, inputs and notes."""
    from workbench.capacity import tables

    lines = [f"INVALID: {reason}" for reason in plan_study.reasons]
    lines += [plan_study.answer, *plan_study.details]
    lines += [*(f"note: {condition}" for condition in plan_study.conditions), ""]
    lines.append(table(plan_study.day, tables.DAY, caption="The day, over all draws").text)
    shown = plan_study.constraints.select("constraint", "figure", "unit", "nodes_saved", "binding")
    lines += ["", table(shown, tables.CONSTRAINTS, caption=f"At the peak, {plan_study.peak_hour:02d}:00").text]
    shown = plan_study.sources.select("input", "value", "low", "high", "unit", "run", "verdict")
    lines += ["", table(shown, tables.SOURCES, caption="Inputs").text, ""]
    lines += [f"note: {note}" for note in plan_study.notes]
    return "\n".join(lines)


def build_plan_document(plan_study: Plan, out: Path | None) -> dict[str, Any]:
    """The plan as one JSON document, with all tables except the what-if."""
    return {
        "answer": plan_study.answer,
        "details": list(plan_study.details),
        "conditions": list(plan_study.conditions),
        "verdict": plan_study.verdict,
        "reasons": list(plan_study.reasons),
        "notes": list(plan_study.notes),
        "peak_hour": plan_study.peak_hour,
        "bound_by": plan_study.bound_by,
        "scheduler": plan_study.kept_up,
        "currency": plan_study.config.currency,
        "folder": None if out is None else str(out),
        **{
            plan_table.name: frame.to_dicts()
            for plan_table, frame in plan_study.tables()
            if plan_table.name != "what_if"
        },
    }
