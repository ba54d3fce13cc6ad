"""Tests of `workbench/speedup/fleet`."""
