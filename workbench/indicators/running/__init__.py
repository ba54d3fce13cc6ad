"""Runs: each a fresh process under limits, in the random order of a session's rounds, one document each on disk."""
