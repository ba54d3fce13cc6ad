"""What users keep is no test, and no module whose examples are tested."""

collect_ignore_glob = ["kept/*", "frozen/*"]
