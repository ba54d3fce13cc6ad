"""Tests of `workbench/speedup/advice`."""
