"""Scenarios, and the plan that follows from one: the same bytes for the same scenario, seed and run."""

from __future__ import annotations

from workbench.scaletest.scenario.workload_plan import Plan, draw_plan, read_plan

__all__ = ["Plan", "draw_plan", "read_plan"]
