"""Tests of `workbench/speedup/comparison`."""
