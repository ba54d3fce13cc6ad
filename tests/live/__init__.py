"""Tests of `workbench/live`."""
