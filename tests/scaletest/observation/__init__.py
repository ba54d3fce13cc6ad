"""Tests of `workbench/scaletest/observation`."""
