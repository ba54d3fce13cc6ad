"""Generators of worlds: a truth is drawn first, then written as the files that a user would have."""
