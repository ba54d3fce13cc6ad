"""From a scenario to what is sent, and when: the same bytes for the same scenario, seed and run."""

from workbench.scaletest.planning.plans import Plan, plan, read

__all__ = ["Plan", "plan", "read"]
