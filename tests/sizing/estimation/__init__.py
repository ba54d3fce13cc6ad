"""Tests of `workbench/sizing/estimation`."""
