"""Tests of `workbench/kubernetes`."""
