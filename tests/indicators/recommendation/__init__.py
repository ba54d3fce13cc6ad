"""Tests of `workbench/indicators/recommendation`."""
