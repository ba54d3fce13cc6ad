"""Tests of `workbench/scaletest/safety`."""
