"""Tests of `workbench/sizing/other_tools`."""
