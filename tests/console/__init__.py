"""Tests of `workbench/console`."""
