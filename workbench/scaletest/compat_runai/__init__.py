"""Compatibility with Run:ai's scale-test tool: its files, delta chain, plots, flags and templates."""
