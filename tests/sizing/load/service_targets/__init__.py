"""Tests of `workbench/sizing/load/service_targets`."""
