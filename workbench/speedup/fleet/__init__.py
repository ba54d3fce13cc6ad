"""Fleet: many logs measured and ranked by predicted gain."""
