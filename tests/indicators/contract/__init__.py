"""Tests of `workbench/indicators/contract`."""
