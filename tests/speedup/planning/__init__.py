"""Tests of `workbench/speedup/planning`."""
