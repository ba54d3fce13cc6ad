"""Tests of `workbench/lore`."""
