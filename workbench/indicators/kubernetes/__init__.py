"""Runs a session on a Kubernetes cluster in separate steps: plan, submit, collect."""
