"""Tests of `workbench/lore/replays`."""
