"""Tests of `workbench/indicators`."""
