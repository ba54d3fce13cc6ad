"""Bisection: find the smallest input with which a dumped operator fails or differs."""
