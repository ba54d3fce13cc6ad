"""Tests of `workbench/lore/spark_bridge`."""
