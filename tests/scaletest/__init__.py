"""Tests of `workbench/scaletest`."""
