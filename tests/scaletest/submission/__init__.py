"""Tests of `workbench/scaletest/submission`."""
