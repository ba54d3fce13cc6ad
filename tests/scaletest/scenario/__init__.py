"""Tests of `workbench/scaletest/scenario`."""
