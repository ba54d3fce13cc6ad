"""Measure how many workloads per second a cluster schedules, and where the time goes.

Flow: scenario → plan → journal (submission) and observations (sampler) → raw tables → milestones → rates,
bottlenecks, time breakdown
"""
