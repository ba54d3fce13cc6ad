"""Queries run on a slice of their tables, on both engines, to correct what factors say of them."""
