"""Tests of `workbench/scaletest/test_run`."""
