"""Tests of `workbench/core`."""
