"""Targets of the load, one module per protocol."""
