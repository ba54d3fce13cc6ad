"""Tests of `workbench/report`."""
