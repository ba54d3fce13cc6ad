"""Tests of `workbench/lore/dump_reader/samples`."""
