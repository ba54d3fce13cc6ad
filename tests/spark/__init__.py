"""Tests of `workbench/spark`."""
