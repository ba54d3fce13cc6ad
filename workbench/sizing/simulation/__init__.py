"""Simulates a GPU cluster with continuous batching, in virtual time and over HTTP."""
