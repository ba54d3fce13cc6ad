"""Forecasts kept when they are made, matched with the outcome when it is known, and scored."""
