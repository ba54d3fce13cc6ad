"""Safety checks before a test: confirmation, simulated-node fence, preflight, rights, setup and cleanup."""
