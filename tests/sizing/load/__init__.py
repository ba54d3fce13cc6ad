"""Tests of `workbench/sizing/load`."""
