"""Storage of runs: the archive of JSON documents, and typed SQL tables that can be rebuilt from it."""
