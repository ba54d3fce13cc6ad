"""Tests of `workbench/speedup/support`."""
