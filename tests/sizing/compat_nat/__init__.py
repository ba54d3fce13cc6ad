"""Tests of `workbench/sizing/compat_nat`."""
