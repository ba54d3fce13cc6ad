"""Tests of `workbench/speedup/calibration`."""
