"""Recommend a stack from a session's effects: constraints, a mix of metrics, chances, and the evidence."""
