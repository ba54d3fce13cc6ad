"""Replays of dumps: run an operator alone, verify its output, time its variants."""
