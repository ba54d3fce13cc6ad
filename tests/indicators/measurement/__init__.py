"""Tests of `workbench/indicators/measurement`."""
