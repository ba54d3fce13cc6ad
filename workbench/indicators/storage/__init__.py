"""Runs in SQL: typed tables that can be made anew from the archive at any time."""
