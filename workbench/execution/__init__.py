"""Notebooks run headless."""
