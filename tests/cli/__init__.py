"""Tests of `workbench/cli`."""
