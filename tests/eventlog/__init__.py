"""Tests of `workbench/eventlog`."""
