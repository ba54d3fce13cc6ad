"""Tests of `workbench/lore/bisection`."""
