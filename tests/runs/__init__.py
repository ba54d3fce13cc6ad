"""Tests of `workbench/runs`."""
