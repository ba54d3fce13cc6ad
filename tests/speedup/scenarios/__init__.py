"""Tests of `workbench/speedup/scenarios`."""
