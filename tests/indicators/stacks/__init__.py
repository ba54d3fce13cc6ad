"""Tests of `workbench/indicators/stacks`."""
