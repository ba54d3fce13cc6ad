"""The last run of a job against its earlier ones: is it slower than usual, and what changed?"""
