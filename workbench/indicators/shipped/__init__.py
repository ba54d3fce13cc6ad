"""Shipped indicators: one fixed definition each, the same in every framework."""
