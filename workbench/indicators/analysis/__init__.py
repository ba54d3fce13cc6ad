"""Compare stacks within a session: observations as tables, effects against the baseline, drift."""
