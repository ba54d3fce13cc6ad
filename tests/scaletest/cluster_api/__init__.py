"""Tests of `workbench/scaletest/cluster_api`."""
