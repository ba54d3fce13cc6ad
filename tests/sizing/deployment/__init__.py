"""Tests of `workbench/sizing/deployment`."""
