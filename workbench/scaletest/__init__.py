"""Measure how many workloads per second a cluster schedules, and where the time goes."""
