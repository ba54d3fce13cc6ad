"""Load on a real service: what is sent, when, by how many processes, and what came of it as raw tables."""
