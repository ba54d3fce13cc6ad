"""Tests of `workbench/speedup/compat_rapids_tools`."""
