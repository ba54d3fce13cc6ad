"""Tests of `workbench/speedup/attribution`."""
