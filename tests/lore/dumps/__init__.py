"""Tests of `workbench/lore/dumps`."""
