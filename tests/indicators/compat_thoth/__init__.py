"""Tests of `workbench/indicators/compat_thoth`."""
