"""Targets that a load is sent to, one module per protocol."""
