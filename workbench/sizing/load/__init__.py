"""Generates load on a real service and records every request in raw tables."""
