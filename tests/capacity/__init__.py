"""Tests of `workbench/capacity`."""
