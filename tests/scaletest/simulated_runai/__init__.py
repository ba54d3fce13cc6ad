"""Tests of `workbench/scaletest/simulated_runai`."""
