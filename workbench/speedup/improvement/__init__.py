"""Changes of settings that are tried, proven faster with the same answers, and written with the way back."""
