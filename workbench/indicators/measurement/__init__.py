"""Run indicators: each run is a fresh process with limits, in random order within rounds, one document each."""
