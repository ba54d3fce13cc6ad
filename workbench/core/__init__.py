"""Errors, schemas, files, locks, child processes, tables, redaction, formats; imports nothing of the other parts."""
