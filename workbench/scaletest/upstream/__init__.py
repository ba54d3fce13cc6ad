"""The older scale-test tool of Run:ai: its files, its chain of deltas, its plots, its flags and its templates."""
