"""Tests of `workbench/execution`."""
