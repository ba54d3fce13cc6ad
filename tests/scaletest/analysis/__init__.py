"""Tests of `workbench/scaletest/analysis`."""
