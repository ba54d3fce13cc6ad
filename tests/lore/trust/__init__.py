"""Tests of `workbench/lore/trust`."""
