"""Tests of `workbench/stats`."""
