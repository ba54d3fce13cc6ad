"""Capacity plan: GPUs, nodes and cost of Spark jobs and a service, and whether the scheduler keeps up.

Flow: run folders of other areas → inputs → model, drawn → hours, peak, binding constraint, break-even; it reads
tables, never another area's code

Map, from what goes in to what comes out:

    capacity.inputs.load_inputs(PlanConfig) -> PlanInputs
    capacity.inputs.build_model(PlanConfig, PlanInputs) -> Model
    capacity.model.draw_quantities(Quantity) -> Floats
    capacity.model.evaluate_model(Model, Floats) -> Outcome
    capacity.peak.build_hours(Model, Outcome) -> DataFrame
    capacity.peak.build_constraints(Model, Outcome) -> DataFrame: which one binds
    capacity.break_even.find_break_even(Model) -> BreakEven
    capacity.study.build_study(PlanConfig, Run) -> Study
"""

__all__ = ["charts", "config", "study", "tables"]
