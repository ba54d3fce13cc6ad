"""Tests of `workbench/indicators/store`."""
