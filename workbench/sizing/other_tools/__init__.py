"""Imports results of other load tools as sweeps."""
