"""Tests of `workbench/speedup/nightly`."""
