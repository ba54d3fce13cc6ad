"""Scenarios, and the plan that follows from one: the same bytes for the same scenario, seed and run."""
