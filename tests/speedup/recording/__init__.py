"""Tests of `workbench/speedup/recording`."""
