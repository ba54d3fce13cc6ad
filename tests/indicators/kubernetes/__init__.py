"""Tests of `workbench/indicators/kubernetes`."""
