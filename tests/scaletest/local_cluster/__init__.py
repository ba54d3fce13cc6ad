"""Tests of `workbench/scaletest/local_cluster`."""
