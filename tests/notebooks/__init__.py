"""Two notebooks with the text of every output as it must be; nbval runs them strictly in the gate."""
