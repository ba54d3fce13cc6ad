"""Tests of `workbench/indicators/analysis`."""
