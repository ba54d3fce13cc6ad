"""Dumps: choose operators, write their inputs, plan and expected output; bundle and locate them."""
