"""Tests of `workbench/speedup/improvement`."""
