"""Tests of `workbench/sizing`."""
