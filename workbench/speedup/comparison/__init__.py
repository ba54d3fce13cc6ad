"""Comparison: the two sides of a pair, and two runs of one query."""
