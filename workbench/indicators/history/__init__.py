"""Figures of an indicator over time: ratios to a pinned reference, change points, and regressions since a date."""
