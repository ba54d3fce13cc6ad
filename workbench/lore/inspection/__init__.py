"""Dumps looked into without a JVM and without loading anything: metas, plans, batches."""
