"""Tests of `workbench/lore/jvm`."""
