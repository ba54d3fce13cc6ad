"""Read dumps without a JVM and without loading anything: metas, plans, batches."""
