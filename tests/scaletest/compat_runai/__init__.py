"""Tests of `workbench/scaletest/compat_runai`."""
