"""Recordings: query suites run on real Spark engines, with one event log per session."""
