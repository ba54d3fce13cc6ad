"""Tests of `workbench/speedup`."""
